#include "ops/attention.h"

#include <cmath>
#include <utility>

#include "ops/op_support.h"
#include "ops/strided.h"

namespace pando {
namespace {

/// Shape of an attention in which queries, keys and values come from `qkv`.
AttentionShape ShapeOf(const Tensor& qkv, const AttentionOptions& options) {
  CheckFloating("attention", qkv);
  Require(qkv.rank() == 3, "attention: qkv ", Describe(qkv), " must be [B, T, (Hq + 2 Hkv) D]");
  const int64_t kv_heads = options.kv_heads == 0 ? options.heads : options.kv_heads;
  Require(options.heads > 0 && kv_heads > 0 && options.heads % kv_heads == 0,
          "attention: ", options.heads, " heads don't share ", kv_heads,
          " heads of keys and values evenly");
  const int64_t all_heads = options.heads + 2 * kv_heads;
  Require(qkv.dim(2) % all_heads == 0, "attention: qkv ", Describe(qkv), " does not divide into ",
          all_heads, " heads");
  AttentionShape shape;
  shape.dtype = qkv.dtype();
  shape.batch = qkv.dim(0);
  shape.query_heads = options.heads;
  shape.kv_heads = kv_heads;
  shape.query_length = shape.key_length = qkv.dim(1);
  shape.head_dim = qkv.dim(2) / all_heads;
  shape.scale =
      options.scale != 0 ? options.scale : 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
  shape.causal = options.causal;
  shape.dropout = options.dropout;
  shape.random = options.random;
  if (options.lengths.defined()) {
    CheckIndices("attention", "lengths", options.lengths, DType::kI32, qkv);
    Require(options.lengths.shape() == Shape{shape.batch}, "attention: lengths ",
            Describe(options.lengths), " for ", shape.batch, " samples");
    shape.lengths = options.lengths.data<int32_t>();
  }
  Require(options.dropout >= 0 && options.dropout < 1, "attention: dropout ", options.dropout,
          " is not in [0, 1)");
  if (options.dropout > 0) {
    CheckIndices("attention", "sample ids", options.sample_ids, DType::kI64, qkv);
    Require(options.sample_ids.shape() == Shape{shape.batch},
            "attention: dropout needs sample ids, i64 [", shape.batch, "], not ",
            Describe(options.sample_ids));
    shape.sample_ids = options.sample_ids.data<int64_t>();
  }
  return shape;
}

ConstAttentionRows RowsOf(const Tensor& t) { return {t.data(), t.dim(1) * t.dim(2), t.dim(2)}; }

AttentionRows MutableRowsOf(Tensor& t) { return {t.mutable_data(), t.dim(1) * t.dim(2), t.dim(2)}; }

Tensor OutputOf(const AttentionShape& shape, Device& device) {
  return Tensor::Empty({shape.batch, shape.query_length, shape.query_heads * shape.head_dim},
                       shape.dtype, device, "attention");
}

/// Kernels want scratch on 64 bytes; the allocator gives 512.
void RunForward(AttentionForwardArgs args, Device& device) {
  const AttentionKernels& kernels = attention_kernels.For(device);
  args.scratch_bytes = kernels.forward_scratch_bytes(args.shape);
  Tensor scratch = Scratch(args.scratch_bytes, device, "attention scratch");
  args.scratch = scratch.mutable_data();
  Run(device, kernels.forward, args);
}

void RunBackward(AttentionBackwardArgs args, Device& device) {
  const AttentionKernels& kernels = attention_kernels.For(device);
  args.scratch_bytes = kernels.backward_scratch_bytes(args.shape);
  Tensor scratch = Scratch(args.scratch_bytes, device, "attention scratch");
  args.scratch = scratch.mutable_data();
  Run(device, kernels.backward, args);
}

/// Copies columns [column, column + width) of new rows into cache rows [past, past + T).
void Append(const Tensor& qkv, int64_t column, Tensor& cache, int64_t past) {
  const int64_t batch = qkv.dim(0), length = qkv.dim(1), width = cache.dim(2);
  StridedIndex<2> index{};
  index.rank = 3;
  const int64_t sizes[3] = {batch, length, width};
  const int64_t to[3] = {cache.dim(1) * width, width, 1};
  const int64_t from[3] = {length * qkv.dim(2), qkv.dim(2), 1};
  for (int d = 0; d < 3; ++d) {
    index.size[d] = sizes[d];
    index.stride[0][d] = to[d];
    index.stride[1][d] = from[d];
  }
  const int64_t element = SizeOf(qkv.dtype());
  Device& device = qkv.device();
  Run(device, copy_kernels.For(device).copy,
      CopyArgs{.dtype = qkv.dtype(),
               .y = static_cast<char*>(cache.mutable_data()) + past * width * element,
               .x = static_cast<const char*>(qkv.data()) + column * element,
               .index = Collapsed(index)});
}

}  // namespace

Tensor Attention(const Tensor& qkv, const AttentionOptions& options) {
  const AttentionShape shape = ShapeOf(qkv, options);
  Device& device = qkv.device();
  const bool record = Recording({&qkv});
  Tensor out = OutputOf(shape, device);
  Tensor lse;
  if (record) {
    lse = Tensor::Empty({shape.batch, shape.query_heads, shape.query_length}, StatsDType(qkv),
                        device, "attention log-sum-exp");
  }
  const auto in = SplitPackedQkv(shape, RowsOf(qkv));
  RunForward({.shape = shape,
              .q = in.q,
              .k = in.k,
              .v = in.v,
              .out = MutableRowsOf(out),
              .lse = record ? lse.mutable_data() : nullptr},
             device);
  if (!record) return out;
  const auto backward = [shape, qkv = Saved(qkv), out = Saved(out), lse = Saved(lse),
                         lengths = Saved(options.lengths),
                         ids = Saved(options.sample_ids)](BackwardPass& pass) {
    const Tensor x = qkv.Get(), y = out.Get(), l = lse.Get();
    Device& device = x.device();
    Tensor dx = Tensor::Empty(x.shape(), x.dtype(), device, "gradient of attention");
    const auto in = SplitPackedQkv(shape, RowsOf(x));
    const auto gradients = SplitPackedQkv(shape, MutableRowsOf(dx));
    RunBackward({.shape = shape,
                 .q = in.q,
                 .k = in.k,
                 .v = in.v,
                 .out = RowsOf(y),
                 .dout = RowsOf(pass.Gradient()),
                 .lse = l.data(),
                 .dq = gradients.q,
                 .dk = gradients.k,
                 .dv = gradients.v},
                device);
    pass.Add(0, std::move(dx));
  };
  Record("attention", {&qkv}, {&out}, backward);
  return out;
}

Tensor AttentionWithCache(const Tensor& qkv, Tensor& keys, Tensor& values, int64_t past,
                          const AttentionOptions& options) {
  AttentionShape shape = ShapeOf(qkv, options);
  CheckFloating("attention", qkv, {&keys, &values});
  const int64_t width = shape.kv_heads * shape.head_dim;
  for (const Tensor* cache : {&keys, &values}) {
    Require(cache->rank() == 3 && cache->dim(0) == shape.batch && cache->dim(2) == width,
            "attention: cache ", Describe(*cache), " for qkv ", Describe(qkv));
    Require(past >= 0 && past <= cache->dim(1) - qkv.dim(1), "attention: ", past, " + ", qkv.dim(1),
            " tokens don't fit a cache of ", cache->dim(1));
  }
  const int64_t query_width = shape.query_heads * shape.head_dim;
  Append(qkv, query_width, keys, past);
  Append(qkv, query_width + width, values, past);
  shape.key_length = past + qkv.dim(1);
  Tensor out = OutputOf(shape, qkv.device());
  RunForward({.shape = shape,
              .q = SplitPackedQkv(shape, RowsOf(qkv)).q,
              .k = RowsOf(keys),
              .v = RowsOf(values),
              .out = MutableRowsOf(out)},
             qkv.device());
  return out;
}

}  // namespace pando
