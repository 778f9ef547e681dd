#include "ops/dropout.h"

#include "ops/op_support.h"

namespace pando {
namespace {

Tensor Apply(const Tensor& x, double p, const RandomKey& key, const Tensor& sample_ids) {
  Tensor y = Tensor::Empty(x.shape(), x.dtype(), x.device(), "dropout");
  const int64_t samples = x.dim(0);
  Run(x.device(), dropout_kernels.For(x.device()).run,
      DropoutArgs{.x = x.data(),
                  .residual = nullptr,
                  .y = y.mutable_data(),
                  .sample_ids = sample_ids.data<int64_t>(),
                  .dtype = x.dtype(),
                  .samples = samples,
                  .elements = samples == 0 ? 0 : x.numel() / samples,
                  .p = p,
                  .key = key});
  return y;
}

}  // namespace

Tensor Dropout(const Tensor& x, double p, const RandomKey& key, const Tensor& sample_ids) {
  CheckFloating("dropout", x);
  Require(p >= 0 && p < 1, "dropout: probability ", p, " is not in [0, 1)");
  if (p == 0) return x;
  CheckIndices("dropout", "sample ids", sample_ids, DType::kI64, x);
  Require(x.rank() >= 1 && sample_ids.shape() == Shape{x.dim(0)}, "dropout: sample ids ",
          Describe(sample_ids), " for x ", Describe(x));
  Tensor y = Apply(x, p, key, sample_ids);
  if (Recording({&x})) {
    Record("dropout", {&x}, {&y}, [p, key, ids = Saved(sample_ids)](BackwardPass& pass) {
      pass.Add(0, Apply(pass.Gradient(), p, key, ids.Get()));
    });
  }
  return y;
}

}  // namespace pando
