#pragma once

// The matrix products of a GPT's training step, each ready to run alone.

#include <cstdint>
#include <string>
#include <vector>

#include "models/gpt.h"
#include "ops/kernels/matmul.h"
#include "tools/bench/timing.h"

namespace pando {

/// A kind of linear layer.
struct GptLayer {
  std::string name;  ///< qkv, proj, fc, fcproj, head
  int64_t in = 0;
  int64_t out = 0;
  bool out_in = false;  ///< the weight is stored [out, in]; such a layer has no bias
  int64_t count = 0;    ///< how many the model has
};

/// The linear layers of a model; its vocabulary padded as the model pads it.
std::vector<GptLayer> GptLayers(const GptConfig& config);

/// The forms of a layer's product: "fwd": y = x W + bias; "dx" = dy W^T; "dw" = x^T dy; "dw+": the
/// same, added to an earlier one.
extern const std::vector<std::string> kProductForms;

/// One product with operands of its own, computed by the kernel that a training step uses: x, dy
/// and W in `dtype`, dW in f32. Throws OutOfMemory.
class GptProduct {
 public:
  GptProduct(const GptLayer& layer, const std::string& form, DType dtype, int64_t tokens);

  void Run() const;

  const MatmulArgs& args() const { return args_; }
  double Gflop() const { return 2e-9 * static_cast<double>(args_.m * args_.n * args_.k); }

 private:
  MatmulArgs args_;
  Buffer a_, b_, c_, bias_, scratch_;
};

}  // namespace pando
