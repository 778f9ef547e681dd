#include "ops/cpu/onednn_matmul.h"

#include <oneapi/dnnl/dnnl_debug.h>

#include <cstring>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/cpu/parallel.h"
#include "engine/error.h"

namespace pando {
namespace {

using Dims = dnnl::memory::dims;

// All that a primitive depends on. Leading dimensions and strides that make no difference are set
// to one value, so that equal products share a primitive and look dense to oneDNN.
struct PlanKey {
  DType input_dtype;
  DType output_dtype;
  bool transpose_a, transpose_b, accumulate, bias;
  int64_t batch, m, n, k;
  int64_t lda, ldb, ldc;
  int64_t stride_a, stride_b, stride_c;
  int threads;

  bool operator==(const PlanKey&) const = default;

  template <typename H>
  friend H AbslHashValue(H h, const PlanKey& p) {
    return H::combine(std::move(h), p.input_dtype, p.output_dtype, p.transpose_a, p.transpose_b,
                      p.accumulate, p.bias, p.batch, p.m, p.n, p.k, p.lda, p.ldb, p.ldc, p.stride_a,
                      p.stride_b, p.stride_c, p.threads);
  }
};

// A matrix of one row has no leading dimension.
int64_t LeadingDimension(bool transposed, int64_t rows, int64_t columns, int64_t ld) {
  const int64_t stored_rows = transposed ? columns : rows;
  return stored_rows == 1 ? (transposed ? rows : columns) : ld;
}

PlanKey KeyOf(const MatmulArgs& args) {
  const bool batched = args.batch > 1;
  return {.input_dtype = args.input_dtype,
          .output_dtype = args.output_dtype,
          .transpose_a = args.transpose_a,
          .transpose_b = args.transpose_b,
          .accumulate = args.accumulate,
          .bias = args.bias != nullptr,
          .batch = args.batch,
          .m = args.m,
          .n = args.n,
          .k = args.k,
          .lda = LeadingDimension(args.transpose_a, args.m, args.k, args.lda),
          .ldb = LeadingDimension(args.transpose_b, args.k, args.n, args.ldb),
          .ldc = LeadingDimension(false, args.m, args.n, args.ldc),
          .stride_a = batched ? args.stride_a : 0,
          .stride_b = batched ? args.stride_b : 0,
          .stride_c = batched ? args.stride_c : 0,
          .threads = NumThreads()};
}

const dnnl::engine& Engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

// Executes in the calling thread and returns when done, so that one serves every thread.
dnnl::stream& Stream() {
  static dnnl::stream stream(Engine());
  return stream;
}

dnnl::memory::data_type OneDnnType(DType dtype) {
  return dtype == DType::kBF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

dnnl::memory::desc Describe(DType dtype, const PlanKey& key, int64_t rows, int64_t columns,
                            bool transposed, int64_t ld, int64_t stride) {
  Dims dims = {rows, columns};
  Dims strides = transposed ? Dims{1, ld} : Dims{ld, 1};
  if (key.batch > 1) {  // one matrix for all is a dimension of 1, which oneDNN repeats
    dims.insert(dims.begin(), stride == 0 ? 1 : key.batch);
    strides.insert(strides.begin(), stride == 0 ? rows * columns : stride);
  }
  return {dims, OneDnnType(dtype), strides};
}

// A primitive with the descriptors that its arguments are wrapped in; none if oneDNN has but its
// reference code, which is slower than ours by orders of magnitude.
struct Plan {
  dnnl::matmul primitive;
  dnnl::memory::desc a, b, c, bias, scratch;
  bool usable = false;
};

Plan MakePlan(const PlanKey& key) {
  Plan plan;
  plan.a = Describe(key.input_dtype, key, key.m, key.k, key.transpose_a, key.lda, key.stride_a);
  plan.b = Describe(key.input_dtype, key, key.k, key.n, key.transpose_b, key.ldb, key.stride_b);
  plan.c = Describe(key.output_dtype, key, key.m, key.n, false, key.ldc, key.stride_c);
  if (key.bias) {
    const Dims dims = key.batch > 1 ? Dims{1, 1, key.n} : Dims{1, key.n};
    const Dims strides = key.batch > 1 ? Dims{key.n, key.n, 1} : Dims{key.n, 1};
    plan.bias = {dims, OneDnnType(key.input_dtype), strides};
  }
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (key.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
  const dnnl::matmul::desc desc = key.bias ? dnnl::matmul::desc(plan.a, plan.b, plan.bias, plan.c)
                                           : dnnl::matmul::desc(plan.a, plan.b, plan.c);
  const dnnl::matmul::primitive_desc made(desc, attributes, Engine(), /*allow_empty=*/true);
  if (!made || std::strncmp(made.impl_info_str(), "ref", 3) == 0) return plan;
  plan.scratch = made.scratchpad_desc();
  plan.primitive = dnnl::matmul(made);
  plan.usable = true;
  return plan;
}

// A model has a few dozen products per micro-batch size; a primitive is some tens of kilobytes.
constexpr int64_t kPlans = 512;

BoundedCache<PlanKey, Plan>& Plans() {
  static BoundedCache<PlanKey, Plan> plans(kPlans);
  return plans;
}

std::shared_ptr<const Plan> PlanOf(const MatmulArgs& args) {
  return Plans().Get(KeyOf(args), MakePlan);
}

dnnl::memory Wrap(const dnnl::memory::desc& desc, const void* data) {
  return {desc, Engine(), const_cast<void*>(data)};  // NOLINT: the C API takes inputs so
}

// Without the instructions for it, oneDNN's bf16 is 2.6 times slower than our own kernel in f32.
bool HasBf16() {
  static const bool has = (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) ==
                          dnnl_cpu_isa_avx512_core_bf16;
  return has;
}

[[noreturn]] void Fail(const MatmulArgs& args, const char* what) {
  throw DeviceError(absl::StrCat("matmul of ", args.batch, " x ", args.m, " x ", args.n, " x ",
                                 args.k, ", ", Name(args.input_dtype), ": oneDNN says: ", what));
}

// Single f32 products go to oneDNN's sgemm, which packs both operands, unless B is transposed: its
// matmul primitive reads a plain B in place, which some processors are slow at (a long row per
// step, each on a page of its own: a third of sgemm's speed on a 4th-generation Xeon) and others a
// little faster; a transposed B it packs, and spreads the work over threads better than sgemm does.
// sgemm packs into memory of its own (a few MB, at most 13 a thread) that no budget counts: a
// primitive on B reordered into scratch of ours would avoid it, at 0.7 to 1.0 of sgemm's speed.
bool UsesSgemm(const MatmulArgs& args) {
  return args.input_dtype == DType::kF32 && args.batch == 1 && !args.transpose_b;
}

void Sgemm(const MatmulArgs& args) {
  float* c = static_cast<float*>(args.c);
  const float* bias = static_cast<const float*>(args.bias);
  if (bias != nullptr) {  // sgemm has no bias, but adds to C
    constexpr int64_t kBiasRows = 8;
    ParallelFor(args.m, kBiasRows, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        float* row = c + i * args.ldc;
        if (!args.accumulate) {
          std::memcpy(row, bias, args.n * sizeof(float));
        } else {
          for (int64_t j = 0; j < args.n; ++j) row[j] += bias[j];
        }
      }
    });
  }
  const float beta = args.accumulate || bias != nullptr ? 1.0f : 0.0f;
  const dnnl_status_t status =
      dnnl_sgemm(args.transpose_a ? 'T' : 'N', 'N', args.m, args.n, args.k, 1.0f,
                 static_cast<const float*>(args.a), args.lda, static_cast<const float*>(args.b),
                 args.ldb, beta, c, args.ldc);
  if (status != dnnl_success) Fail(args, dnnl_status2str(status));
}

}  // namespace

bool OneDnnCanMultiply(const MatmulArgs& args) {
  const bool f32 = args.input_dtype == DType::kF32 && args.output_dtype == DType::kF32;
  const bool bf16 = args.input_dtype == DType::kBF16 && HasBf16() &&
                    (args.output_dtype == DType::kF32 || args.output_dtype == DType::kBF16);
  return (f32 || bf16) && (UsesSgemm(args) || PlanOf(args)->usable);
}

int64_t OneDnnScratchBytes(const MatmulArgs& args) {
  return UsesSgemm(args) ? 0 : static_cast<int64_t>(PlanOf(args)->scratch.get_size());
}

void OneDnnMultiply(const MatmulArgs& args) {
  if (UsesSgemm(args)) {
    Sgemm(args);
    return;
  }
  const std::shared_ptr<const Plan> plan = PlanOf(args);
  std::unordered_map<int, dnnl::memory> arguments = {
      {DNNL_ARG_SRC, Wrap(plan->a, args.a)},
      {DNNL_ARG_WEIGHTS, Wrap(plan->b, args.b)},
      {DNNL_ARG_DST, Wrap(plan->c, args.c)},
      {DNNL_ARG_SCRATCHPAD, Wrap(plan->scratch, args.scratch)}};
  if (args.bias != nullptr) arguments.emplace(DNNL_ARG_BIAS, Wrap(plan->bias, args.bias));
  try {
    plan->primitive.execute(Stream(), arguments);
  } catch (const dnnl::error& e) {
    Fail(args, e.what());
  }
}

CacheStats OneDnnMatmulCacheStats() { return Plans().stats(); }

}  // namespace pando
