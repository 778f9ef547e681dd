#include "ops/embedding.h"

#include <utility>

#include "ops/op_support.h"

namespace pando {
namespace {

Tensor Embed(const Tensor& tokens, const Tensor& table, const Tensor& positions, int64_t length,
             int64_t offset) {
  CheckFloating("embedding", table, {&positions});
  CheckIndices("embedding", "tokens", tokens, DType::kI32, table);
  Require(table.rank() == 2, "embedding: table ", Describe(table), " must be [V, C]");
  Require(!positions.defined() || (positions.rank() == 2 && positions.dim(1) == table.dim(1)),
          "embedding: positions ", Describe(positions), " beside table ", Describe(table));
  Device& device = table.device();
  const int64_t vocab = table.dim(0);
  const int64_t cols = table.dim(1);
  std::vector<int64_t> dims = tokens.shape().dims();
  dims.push_back(cols);
  Tensor out = Tensor::Empty(Shape(std::move(dims)), table.dtype(), device, "embedding");
  Run(device, embedding_kernels.For(device).forward,
      EmbeddingForwardArgs{.tokens = tokens.data<int32_t>(),
                           .table = table.data(),
                           .positions = DataOrNull(positions),
                           .out = out.mutable_data(),
                           .error = device.error_flag(),
                           .dtype = table.dtype(),
                           .count = tokens.numel(),
                           .vocab = vocab,
                           .cols = cols,
                           .length = length,
                           .offset = offset});
  if (!Recording({&table, &positions})) return out;
  const auto backward = [tokens = Saved(tokens), vocab, cols, length, offset,
                         positions_shape = positions.shape()](BackwardPass& pass) {
    const Tensor ids = tokens.Get();
    const Tensor& dout = pass.Gradient();
    Device& device = ids.device();
    const EmbeddingKernels& kernels = embedding_kernels.For(device);
    SumTarget dtable(pass, 0, {vocab, cols}, dout), dpositions(pass, 1, positions_shape, dout);
    dtable.StartFromZero();
    dpositions.StartFromZero();
    Tensor scratch = Scratch(kernels.backward_scratch(ids.numel(), vocab), device, "embedding");
    Run(device, kernels.backward,
        EmbeddingBackwardArgs{.tokens = ids.data<int32_t>(),
                              .dout = dout.data(),
                              .dtable = dtable.data(),
                              .dpositions = dpositions.data(),
                              .dtype = dout.dtype(),
                              .count = ids.numel(),
                              .vocab = vocab,
                              .cols = cols,
                              .length = length,
                              .offset = offset,
                              .scratch = scratch.mutable_data()});
    dtable.Finish();
    dpositions.Finish();
  };
  Record("embedding", {&table, &positions}, {&out}, backward);
  return out;
}

}  // namespace

Tensor Embedding(const Tensor& tokens, const Tensor& table) {
  return Embed(tokens, table, Tensor(), 1, 0);
}

Tensor PositionalEmbedding(const Tensor& tokens, const Tensor& table, const Tensor& positions,
                           int64_t first_position) {
  Require(tokens.rank() == 2, "embedding: tokens ", Describe(tokens), " must be [B, T]");
  Require(positions.defined() && positions.rank() == 2, "embedding: positions ",
          Describe(positions), " must be [P, C]");
  Require(first_position >= 0 && first_position <= positions.dim(0) - tokens.dim(1),
          "embedding: positions ", first_position, " to ", first_position + tokens.dim(1),
          " of the table ", Describe(positions));
  return Embed(tokens, table, positions, tokens.dim(1), first_position);
}

}  // namespace pando
