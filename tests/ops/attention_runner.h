#pragma once

// Runs attention kernels on a device on dense f64 values, through rows with margins that must stay
// untouched.

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/cpu/cpu_device.h"
#include "engine/tensor.h"
#include "ops/kernels/attention.h"
#include "tests/ops/attention_naive.h"
#include "tests/samples.h"

namespace pando {

inline constexpr RandomKey kKey{.seed = 987654321098765ull, .site = 77, .step = 12};
inline constexpr int64_t kMargin = 3;
inline constexpr double kUntouched = 42;

/// How the kernels are run.
struct RunOptions {
  Device* device = &CpuDevice();
  /// Scratch for that many threads; 0: as the kernels ask.
  int64_t scratch_pieces = 0;
  /// Heads are followed by this many elements in each row, and must leave them alone.
  int64_t margin = kMargin;
};

/// A dense [B, rows, heads x D] of f64 as rows of T with margins, on a device.
template <typename T>
class Rows {
 public:
  Rows(const RunOptions& options, int64_t batch, int64_t rows, int64_t width,
       const std::vector<double>& dense = {})
      : rows_(rows), width_(width), stride_(width + options.margin) {
    std::vector<T> data(batch * rows * stride_, RoundTo<T>(kUntouched));
    for (size_t i = 0; i < dense.size(); ++i) data[At(i)] = RoundTo<T>(dense[i]);
    tensor_ = Tensor::FromHost(data, {batch, rows, stride_}, *options.device);
  }
  AttentionRows Args() { return {tensor_.mutable_data(), rows_ * stride_, stride_}; }
  ConstAttentionRows ConstArgs() const { return {tensor_.data(), rows_ * stride_, stride_}; }
  /// The values; fails if a margin was written.
  std::vector<T> Dense() const {
    const std::vector<T> data = tensor_.ToHost<T>();
    std::vector<T> dense;
    for (size_t i = 0; i < data.size(); ++i) {
      if (static_cast<int64_t>(i) % stride_ < width_) {
        dense.push_back(data[i]);
      } else {
        EXPECT_EQ(ToFloat(data[i]), kUntouched);
      }
    }
    return dense;
  }

 private:
  int64_t At(int64_t i) const { return i / width_ * stride_ + i % width_; }

  int64_t rows_, width_, stride_;
  Tensor tensor_;
};

/// A shape whose arrays are on the device.
template <typename T>
struct DeviceShape {
  Tensor lengths, sample_ids;
  AttentionShape shape;

  DeviceShape(const AttentionShape& host, Device& device) : shape(host) {
    shape.dtype = DTypeOf<T>::value;
    const auto batch = static_cast<size_t>(host.batch);
    if (host.lengths != nullptr) {
      lengths = Tensor::FromHost(std::span(host.lengths, batch), {host.batch}, device);
      shape.lengths = lengths.data<int32_t>();
    }
    if (host.sample_ids != nullptr) {
      sample_ids = Tensor::FromHost(std::span(host.sample_ids, batch), {host.batch}, device);
      shape.sample_ids = sample_ids.data<int64_t>();
    }
  }
};

template <typename T>
struct ForwardResult {
  std::vector<T> out;
  std::vector<ComputeType<T>> lse;
};

template <typename T>
struct Gradients {
  std::vector<T> dq, dk, dv;
};

/// Room as the kernel asks for, or as it asks for `pieces` threads.
inline Tensor ScratchFor(int64_t (*ask)(const AttentionShape&), const AttentionShape& shape,
                         const RunOptions& options) {
  const auto bytes = [&] {
    if (options.scratch_pieces == 0) return ask(shape);
    const WithThreads some(static_cast<int>(options.scratch_pieces));
    return ask(shape);
  }();
  return Tensor::Empty({(bytes + 3) / 4}, DType::kF32, *options.device, "scratch");
}

/// Runs forward on the inputs of `in`, rounded to T.
template <typename T>
ForwardResult<T> RunForward(const AttentionKernels& kernels, const NaiveAttention& in,
                            const RunOptions& options = {}) {
  using C = ComputeType<T>;
  const AttentionShape& s = in.shape;
  const DeviceShape<T> on_device(s, *options.device);
  const int64_t q_width = s.query_heads * s.head_dim;
  const int64_t kv_width = s.kv_heads * s.head_dim;
  const Rows<T> q(options, s.batch, s.query_length, q_width, in.q);
  const Rows<T> k(options, s.batch, s.key_length, kv_width, in.k);
  const Rows<T> v(options, s.batch, s.key_length, kv_width, in.v);
  Rows<T> out(options, s.batch, s.query_length, q_width);
  Tensor lse = Tensor::Empty({s.batch, s.query_heads, s.query_length}, DTypeOf<C>::value,
                             *options.device, "lse");
  Tensor scratch = ScratchFor(kernels.forward_scratch_bytes, on_device.shape, options);
  const AttentionForwardArgs args{.shape = on_device.shape,
                                  .q = q.ConstArgs(),
                                  .k = k.ConstArgs(),
                                  .v = v.ConstArgs(),
                                  .out = out.Args(),
                                  .lse = lse.mutable_data(),
                                  .scratch = scratch.mutable_data(),
                                  .scratch_bytes = scratch.bytes()};
  options.device->current_stream().Launch(kernels.forward, args);
  return {out.Dense(), lse.ToHost<C>()};
}

/// Gradients from the f64 output and log-sum-exps of `in`, rounded.
template <typename T>
Gradients<T> RunBackward(const AttentionKernels& kernels, const NaiveAttention& in,
                         const RunOptions& options = {}) {
  using C = ComputeType<T>;
  const AttentionShape& s = in.shape;
  const DeviceShape<T> on_device(s, *options.device);
  const int64_t q_width = s.query_heads * s.head_dim;
  const int64_t kv_width = s.kv_heads * s.head_dim;
  const Rows<T> q(options, s.batch, s.query_length, q_width, in.q);
  const Rows<T> k(options, s.batch, s.key_length, kv_width, in.k);
  const Rows<T> v(options, s.batch, s.key_length, kv_width, in.v);
  const Rows<T> out(options, s.batch, s.query_length, q_width, in.out);
  const Rows<T> dout(options, s.batch, s.query_length, q_width, in.dout);
  const Tensor lse = Tensor::FromHost(std::vector<C>(in.lse.begin(), in.lse.end()),
                                      {s.batch, s.query_heads, s.query_length}, *options.device);
  Rows<T> dq(options, s.batch, s.query_length, q_width);
  Rows<T> dk(options, s.batch, s.key_length, kv_width);
  Rows<T> dv(options, s.batch, s.key_length, kv_width);
  Tensor scratch = ScratchFor(kernels.backward_scratch_bytes, on_device.shape, options);
  const AttentionBackwardArgs args{.shape = on_device.shape,
                                   .q = q.ConstArgs(),
                                   .k = k.ConstArgs(),
                                   .v = v.ConstArgs(),
                                   .out = out.ConstArgs(),
                                   .dout = dout.ConstArgs(),
                                   .lse = lse.data(),
                                   .dq = dq.Args(),
                                   .dk = dk.Args(),
                                   .dv = dv.Args(),
                                   .scratch = scratch.mutable_data(),
                                   .scratch_bytes = scratch.bytes()};
  options.device->current_stream().Launch(kernels.backward, args);
  return {dq.Dense(), dk.Dense(), dv.Dense()};
}

/// Roundings of the compute type in a result, relative to its terms taken absolutely. Probabilities
/// are relatively as wrong as scores are absolutely, so the scores' size counts; that a score, and
/// then a result, is rounded in every step of its sum is in the factors: 3/2 of the worst seen.
inline double Roundings(const NaiveAttention& in) { return 18 + 9 * in.score_terms; }

inline double MaxAbs(const std::vector<double>& x) {
  double max = 0;
  for (double v : x) max = std::max(max, std::fabs(v));
  return max;
}

/// Inputs rounded to T, so that the f64 oracle starts from what the kernel sees.
template <typename T>
NaiveAttention MakeCase(const AttentionShape& shape, double magnitude = 1) {
  NaiveAttention in(shape);
  const int64_t queries = shape.batch * shape.query_length * shape.query_heads * shape.head_dim;
  const int64_t keys = shape.batch * shape.key_length * shape.kv_heads * shape.head_dim;
  in.q = Doubles(Samples<T>(queries, 0, magnitude));
  in.k = Doubles(Samples<T>(keys, 1000003, magnitude));
  in.v = Doubles(Samples<T>(keys, 2000003));
  in.dout = Doubles(Samples<T>(queries, 3000017));
  return in;
}

inline AttentionShape MakeShape(int64_t batch, int64_t heads, int64_t kv_heads, int64_t length,
                                int64_t dim, bool causal) {
  return {.batch = batch,
          .query_heads = heads,
          .kv_heads = kv_heads,
          .query_length = length,
          .key_length = length,
          .head_dim = dim,
          .scale = 1 / std::sqrt(static_cast<double>(dim)),
          .causal = causal,
          .random = kKey};
}

}  // namespace pando
