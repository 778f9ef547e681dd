#include "tools/bench/gpt_products.h"

#include "ops/cpu/matmul_cpu.h"

namespace pando {
namespace {

MatmulArgs Shaped(const GptLayer& layer, const std::string& form, DType dtype, int64_t tokens) {
  MatmulArgs args = {};
  args.input_dtype = dtype;
  args.output_dtype = dtype;
  args.batch = 1;
  if (form == "fwd") {
    args.m = tokens;
    args.n = layer.out;
    args.k = layer.in;
    args.transpose_b = layer.out_in;
  } else if (form == "dx") {
    args.m = tokens;
    args.n = layer.in;
    args.k = layer.out;
    args.transpose_b = !layer.out_in;
  } else {
    args.m = layer.out_in ? layer.out : layer.in;
    args.n = layer.out_in ? layer.in : layer.out;
    args.k = tokens;
    args.transpose_a = true;
    args.accumulate = form == "dw+";
    args.output_dtype = DType::kF32;
  }
  args.lda = args.transpose_a ? args.m : args.k;
  args.ldb = args.transpose_b ? args.k : args.n;
  args.ldc = args.n;
  return args;
}

// Scratch is asked for with a bias that is there or not.
int64_t ScratchBytes(MatmulArgs args, bool bias) {
  args.bias = bias ? &args : nullptr;
  return CpuMatmulKernels().scratch_bytes(args);
}

bool HasBias(const GptLayer& layer, const std::string& form) {
  return form == "fwd" && !layer.out_in;
}

}  // namespace

const std::vector<std::string> kProductForms = {"fwd", "dx", "dw", "dw+"};

std::vector<GptLayer> GptLayers(const GptConfig& config) {
  const int64_t width = config.width;
  return {{"qkv", width, 3 * width, false, config.layers},
          {"proj", width, width, false, config.layers},
          {"fc", width, 4 * width, false, config.layers},
          {"fcproj", 4 * width, width, false, config.layers},
          {"head", width, (config.vocab_size + 63) / 64 * 64, true, 1}};
}

GptProduct::GptProduct(const GptLayer& layer, const std::string& form, DType dtype, int64_t tokens)
    : args_(Shaped(layer, form, dtype, tokens)),
      a_(dtype, args_.m * args_.k),
      b_(dtype, args_.k * args_.n),
      c_(args_.output_dtype, args_.m * args_.n),
      bias_(dtype, args_.n),
      scratch_(DType::kF32, ScratchBytes(args_, HasBias(layer, form)) / 4) {
  args_.a = a_.data();
  args_.b = b_.data();
  args_.c = c_.data();
  args_.bias = HasBias(layer, form) ? bias_.data() : nullptr;
  args_.scratch_bytes = ScratchBytes(args_, args_.bias != nullptr);
  args_.scratch = scratch_.data();
}

void GptProduct::Run() const { CpuMatmulKernels().matmul(args_, nullptr); }

}  // namespace pando
