#pragma once

// Runs attention kernels on dense f64 values, through rows with margins that must stay untouched.

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ops/kernels/attention.h"
#include "tests/ops/attention_naive.h"
#include "tests/samples.h"

namespace pando {

inline constexpr RandomKey kKey{.seed = 987654321098765ull, .site = 77, .step = 12};
// Heads are followed by this many elements in each row, and must leave them alone.
inline constexpr int64_t kMargin = 3;
inline constexpr double kUntouched = 42;

/// A dense [B, rows, heads x D] of f64 as rows of T with margins.
template <typename T>
struct Rows {
  int64_t batch, rows, width;
  std::vector<T> data;

  Rows(int64_t batch, int64_t rows, int64_t width)
      : batch(batch), rows(rows), width(width), data(batch * rows * (width + kMargin)) {
    for (T& x : data) x = RoundTo<T>(kUntouched);
  }
  Rows(int64_t batch, int64_t rows, int64_t width, const std::vector<double>& dense)
      : Rows(batch, rows, width) {
    for (size_t i = 0; i < dense.size(); ++i) data[At(i)] = RoundTo<T>(dense[i]);
  }
  int64_t At(int64_t i) const { return i / width * (width + kMargin) + i % width; }
  AttentionRows Args() { return {data.data(), rows * (width + kMargin), width + kMargin}; }
  ConstAttentionRows ConstArgs() const {
    return {data.data(), rows * (width + kMargin), width + kMargin};
  }
  /// The values; fails if a margin was written.
  std::vector<T> Dense() const {
    std::vector<T> dense;
    for (size_t i = 0; i < data.size(); ++i) {
      if (static_cast<int64_t>(i) % (width + kMargin) < width) {
        dense.push_back(data[i]);
      } else {
        EXPECT_EQ(ToFloat(data[i]), kUntouched);
      }
    }
    return dense;
  }
};

/// Room on a 64-byte boundary.
class AlignedBytes {
 public:
  explicit AlignedBytes(int64_t n) : bytes_(n + 64, std::byte{0x7F}) {}
  void* data() {
    void* start = bytes_.data();
    size_t room = bytes_.size();
    return std::align(64, bytes_.size() - 64, start, room);
  }

 private:
  std::vector<std::byte> bytes_;
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

/// What the kernel asks for, or with `pieces` what it asks for that many threads.
inline int64_t ScratchBytes(int64_t (*ask)(const AttentionShape&), const AttentionShape& shape,
                            int64_t pieces) {
  if (pieces == 0) return ask(shape);
  const WithThreads one(static_cast<int>(pieces));
  return ask(shape);
}

/// Runs forward on the inputs of `in`, rounded to T.
template <typename T>
ForwardResult<T> RunForward(const AttentionKernels& kernels, const NaiveAttention& in,
                            int64_t scratch_pieces = 0) {
  using C = ComputeType<T>;
  const AttentionShape& s = in.shape;
  const int64_t q_width = s.query_heads * s.head_dim;
  const int64_t kv_width = s.kv_heads * s.head_dim;
  const Rows<T> q(s.batch, s.query_length, q_width, in.q);
  const Rows<T> k(s.batch, s.key_length, kv_width, in.k);
  const Rows<T> v(s.batch, s.key_length, kv_width, in.v);
  Rows<T> out(s.batch, s.query_length, q_width);
  std::vector<C> lse(s.batch * s.query_heads * s.query_length, C(kUntouched));
  AttentionForwardArgs args{.shape = s,
                            .q = q.ConstArgs(),
                            .k = k.ConstArgs(),
                            .v = v.ConstArgs(),
                            .out = out.Args(),
                            .lse = lse.data()};
  args.shape.dtype = DTypeOf<T>::value;
  args.scratch_bytes = ScratchBytes(kernels.forward_scratch_bytes, args.shape, scratch_pieces);
  AlignedBytes scratch(args.scratch_bytes);
  args.scratch = scratch.data();
  kernels.forward(args, nullptr);
  return {out.Dense(), lse};
}

/// Gradients from the f64 output and log-sum-exps of `in`, rounded.
template <typename T>
Gradients<T> RunBackward(const AttentionKernels& kernels, const NaiveAttention& in,
                         int64_t scratch_pieces = 0) {
  using C = ComputeType<T>;
  const AttentionShape& s = in.shape;
  const int64_t q_width = s.query_heads * s.head_dim;
  const int64_t kv_width = s.kv_heads * s.head_dim;
  const Rows<T> q(s.batch, s.query_length, q_width, in.q);
  const Rows<T> k(s.batch, s.key_length, kv_width, in.k);
  const Rows<T> v(s.batch, s.key_length, kv_width, in.v);
  const Rows<T> out(s.batch, s.query_length, q_width, in.out);
  const Rows<T> dout(s.batch, s.query_length, q_width, in.dout);
  const std::vector<C> lse(in.lse.begin(), in.lse.end());
  Rows<T> dq(s.batch, s.query_length, q_width);
  Rows<T> dk(s.batch, s.key_length, kv_width);
  Rows<T> dv(s.batch, s.key_length, kv_width);
  AttentionBackwardArgs args{.shape = s,
                             .q = q.ConstArgs(),
                             .k = k.ConstArgs(),
                             .v = v.ConstArgs(),
                             .out = out.ConstArgs(),
                             .dout = dout.ConstArgs(),
                             .lse = lse.data(),
                             .dq = dq.Args(),
                             .dk = dk.Args(),
                             .dv = dv.Args()};
  args.shape.dtype = DTypeOf<T>::value;
  args.scratch_bytes = ScratchBytes(kernels.backward_scratch_bytes, args.shape, scratch_pieces);
  AlignedBytes scratch(args.scratch_bytes);
  args.scratch = scratch.data();
  kernels.backward(args, nullptr);
  return {dq.Dense(), dk.Dense(), dv.Dense()};
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
