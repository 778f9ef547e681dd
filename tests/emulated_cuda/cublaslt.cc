// Stand-in for cuBLASLt: plain loops with sums in double, and the refusals that the library's
// documentation states (docs.nvidia.com/cuda/cublas, sections cublasLtMatmul,
// cublasLtMatmulDescAttributes_t, cublasLtMatmulPreferenceAttributes_t).
#include "cublasLt.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "engine/types.h"
#include "tests/emulated_cuda/emulated_cuda.h"

struct cublasLtContext {
  uint64_t magic;
};

namespace {

constexpr uint64_t kMagic = 0x6c745f68616e646cull;

using Desc = cublasLtMatmulDescOpaque_t;
using Layout = cublasLtMatrixLayoutOpaque_t;

int64_t SizeOf(cudaDataType_t type) {
  switch (type) {
    case CUDA_R_64F:
      return 8;
    case CUDA_R_32F:
      return 4;
    default:
      return 2;
  }
}

double Load(const void* base, cudaDataType_t type, int64_t i) {
  switch (type) {
    case CUDA_R_64F:
      return static_cast<const double*>(base)[i];
    case CUDA_R_32F:
      return static_cast<const float*>(base)[i];
    case CUDA_R_16BF:
      return pando::ToFloat(static_cast<const pando::BFloat16*>(base)[i]);
    default:
      return pando::ToFloat(static_cast<const pando::Float16*>(base)[i]);
  }
}

void Store(void* base, cudaDataType_t type, int64_t i, double value) {
  const auto f = static_cast<float>(value);
  switch (type) {
    case CUDA_R_64F:
      static_cast<double*>(base)[i] = value;
      break;
    case CUDA_R_32F:
      static_cast<float*>(base)[i] = f;
      break;
    case CUDA_R_16BF:
      static_cast<pando::BFloat16*>(base)[i] = pando::ToBFloat16(f);
      break;
    default:
      static_cast<pando::Float16*>(base)[i] = pando::ToFloat16(f);
  }
}

// To the nearest of 10 bits behind the point, ties away from zero (PTX, cvt.rna.tf32.f32).
double ToTf32(double x) {
  const auto f = static_cast<float>(x);
  uint32_t bits;
  std::memcpy(&bits, &f, sizeof(bits));
  bits = (bits + 0x1000u) & ~0x1FFFu;
  float rounded;
  std::memcpy(&rounded, &bits, sizeof(rounded));
  return rounded;
}

// The tanh form: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.
constexpr double kGeluC = 0.044715;
double GeluTanh(double x) { return std::tanh(std::sqrt(2 / M_PI) * (x + kGeluC * x * x * x)); }
double Gelu(double x) { return 0.5 * x * (1 + GeluTanh(x)); }
double GeluSlope(double x) {
  const double t = GeluTanh(x);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * kGeluC * x * x);
}

// Whether the epilogue's number has this part (cublasLtEpilogue_t is made of bits).
bool Has(const Desc& desc, int bit) { return (static_cast<int>(desc.epilogue) & bit) != 0; }
bool IsGradientOfBias(const Desc& d) {
  return d.epilogue == CUBLASLT_EPILOGUE_BGRADA || d.epilogue == CUBLASLT_EPILOGUE_BGRADB;
}
bool NeedsBias(const Desc& d) { return Has(d, CUBLASLT_EPILOGUE_BIAS) || IsGradientOfBias(d); }
bool NeedsAux(const Desc& d) { return Has(d, 128); }

bool IsKnown(cublasLtEpilogue_t e) {
  switch (e) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU:
    case CUBLASLT_EPILOGUE_BGRADA:
    case CUBLASLT_EPILOGUE_BGRADB:
      return true;
  }
  return false;
}

// The table of data types of cublasLtMatmul: compute and scale type, type of A and B, of C and D.
// The vector of a bias has D's type.
bool TypesSupported(const Desc& desc, const Layout& a, const Layout& b, const Layout& d) {
  if (a.type != b.type) return false;
  if (desc.compute == CUBLAS_COMPUTE_64F) {
    return desc.scale == CUDA_R_64F && a.type == CUDA_R_64F && d.type == CUDA_R_64F;
  }
  if (desc.scale != CUDA_R_32F || a.type == CUDA_R_64F) return false;
  if (desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32) {
    return a.type == CUDA_R_32F && d.type == CUDA_R_32F;
  }
  return desc.compute == CUBLAS_COMPUTE_32F && (d.type == a.type || d.type == CUDA_R_32F);
}

bool SameShape(const Layout& x, const Layout& y) {
  return x.type == y.type && x.rows == y.rows && x.cols == y.cols && x.ld == y.ld &&
         x.batch == y.batch && x.stride == y.stride;
}

bool LayoutsFit(const Desc& desc, const Layout& a, const Layout& b, const Layout& c,
                const Layout& d) {
  const bool ta = desc.transa == CUBLAS_OP_T, tb = desc.transb == CUBLAS_OP_T;
  const auto valid = [&d](const Layout& x) {
    return x.rows > 0 && x.cols > 0 && x.ld >= x.rows && x.batch == d.batch && x.batch > 0;
  };
  return valid(a) && valid(b) && valid(d) && SameShape(c, d) && (ta ? a.cols : a.rows) == d.rows &&
         (tb ? b.rows : b.cols) == d.cols && (ta ? a.rows : a.cols) == (tb ? b.cols : b.rows) &&
         (d.batch == 1 || d.stride >= d.ld * (d.cols - 1) + d.rows);
}

// CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: divisible by 8 and no less than the rows of D.
bool EpilogueFits(const Desc& desc, const Layout& d) {
  if (NeedsBias(desc) && desc.bias == nullptr) return false;
  return !NeedsAux(desc) ||
         (desc.aux != nullptr && desc.aux_ld % 8 == 0 && desc.aux_ld >= d.rows && d.batch == 1);
}

cublasStatus_t Check(const Desc& desc, const Layout& a, const Layout& b, const Layout& c,
                     const Layout& d) {
  if (!LayoutsFit(desc, a, b, c, d) || !EpilogueFits(desc, d)) return CUBLAS_STATUS_INVALID_VALUE;
  if (!IsKnown(desc.epilogue) || !TypesSupported(desc, a, b, d)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

bool IsAligned(const void* p, uint64_t bytes) {
  return bytes == 0 || reinterpret_cast<uintptr_t>(p) % bytes == 0;
}

uint64_t LowestBit(const void* p) {
  const auto bits = reinterpret_cast<uintptr_t>(p);
  return std::min<uint64_t>(bits & (~bits + 1), 256);
}

uint64_t Mix(uint64_t h, uint64_t x) { return (h ^ x) * 0x9e3779b97f4a7c15ull + (h >> 29); }

// An algorithm serves one problem: another is refused, as the library may.
uint64_t Fingerprint(const Desc& desc, const Layout& a, const Layout& b, const Layout& d) {
  uint64_t h = Mix(static_cast<uint64_t>(desc.compute), static_cast<uint64_t>(desc.epilogue));
  h = Mix(h, static_cast<uint64_t>(desc.transa) * 2 + static_cast<uint64_t>(desc.transb));
  for (const Layout* l : {&a, &b, &d}) {
    for (const int64_t x : {static_cast<int64_t>(l->type), l->rows, l->cols, l->ld,
                            static_cast<int64_t>(l->batch), l->stride}) {
      h = Mix(h, static_cast<uint64_t>(x));
    }
  }
  return h;
}

// One product as queued: what was passed is copied, as the library does.
struct Call {
  Desc desc;
  Layout a_layout, b_layout, d_layout;
  const void* a;
  const void* b;
  void* d;
  double alpha, beta;
  void* workspace;
  int64_t workspace_bytes;

  // op(x) of matrix `batch`, `outer` rows of `inner` elements: rows of A, columns of B.
  std::vector<double> Packed(const void* x, const Layout& l, int64_t batch, bool rows_are_outer,
                             int64_t outer, int64_t inner) const {
    std::vector<double> packed(static_cast<size_t>(outer * inner));
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t p = 0; p < inner; ++p) {
        const int64_t at = batch * l.stride + (rows_are_outer ? o + p * l.ld : p + o * l.ld);
        double value = Load(x, l.type, at);
        if (desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32) value = ToTf32(value);
        packed[static_cast<size_t>(o * inner + p)] = value;
      }
    }
    return packed;
  }

  double Finish(double value, int64_t row, int64_t col) const {
    if (Has(desc, CUBLASLT_EPILOGUE_BIAS)) value += Load(desc.bias, d_layout.type, row);
    const int64_t at = row + col * desc.aux_ld;
    if (desc.epilogue == CUBLASLT_EPILOGUE_DGELU) {
      return value * GeluSlope(Load(desc.aux, d_layout.type, at));
    }
    if (NeedsAux(desc)) Store(desc.aux, d_layout.type, at, value);
    return Has(desc, CUBLASLT_EPILOGUE_GELU) ? Gelu(value) : value;
  }

  void StoreSums(const std::vector<double>& packed, int64_t outer, int64_t inner) const {
    for (int64_t o = 0; o < outer; ++o) {
      double sum = 0;
      for (int64_t p = 0; p < inner; ++p) sum += packed[static_cast<size_t>(o * inner + p)];
      Store(desc.bias, d_layout.type, o, sum);
    }
  }

  // A matrix, or a batch of them, must lie in one allocation of the device.
  bool IsOnDevice(const char* name, const void* x, const Layout& l) const {
    const int64_t elements = (l.batch - 1) * l.stride + (l.cols - 1) * l.ld + l.rows;
    if (emulated_cuda::IsDeviceMemory(x, static_cast<size_t>(elements * SizeOf(l.type)))) {
      return true;
    }
    emulated_cuda::Fail(std::string("cublasLtMatmul: ") + name + " is not in device memory");
    return false;
  }

  void Run() const {
    if (!IsOnDevice("A", a, a_layout) || !IsOnDevice("B", b, b_layout) ||
        !IsOnDevice("D", d, d_layout)) {
      return;
    }
    // The workspace is the algorithm's: whatever is in it is lost.
    std::memset(workspace, 0xFF, 256);
    std::memset(static_cast<char*>(workspace) + workspace_bytes - 256, 0xFF, 256);
    const bool ta = desc.transa == CUBLAS_OP_T, tb = desc.transb == CUBLAS_OP_T;
    const int64_t rows = d_layout.rows, cols = d_layout.cols;
    const int64_t inner = ta ? a_layout.rows : a_layout.cols;
    for (int64_t batch = 0; batch < d_layout.batch; ++batch) {
      const std::vector<double> x = Packed(a, a_layout, batch, !ta, rows, inner);
      const std::vector<double> y = Packed(b, b_layout, batch, tb, cols, inner);
      if (desc.epilogue == CUBLASLT_EPILOGUE_BGRADA) StoreSums(x, rows, inner);
      if (desc.epilogue == CUBLASLT_EPILOGUE_BGRADB) StoreSums(y, cols, inner);
      for (int64_t j = 0; j < cols; ++j) {
        for (int64_t i = 0; i < rows; ++i) {
          const double* u = &x[static_cast<size_t>(i * inner)];
          const double* v = &y[static_cast<size_t>(j * inner)];
          double sum = 0;
          for (int64_t p = 0; p < inner; ++p) sum += u[p] * v[p];
          const int64_t at = batch * d_layout.stride + i + j * d_layout.ld;
          sum *= alpha;
          if (beta != 0) sum += beta * Load(d, d_layout.type, at);
          Store(d, d_layout.type, at, Finish(sum, i, j));
        }
      }
    }
  }
};

std::mutex counting;
std::map<cublasLtEpilogue_t, int64_t> products;

template <typename Field>
cublasStatus_t Assign(Field& field, const void* value, size_t bytes) {
  if (value == nullptr || bytes != sizeof(Field)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&field, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

int64_t emulated_cuda::ProductsWith(cublasLtEpilogue_t epilogue) {
  const std::lock_guard<std::mutex> lock(counting);
  return products[epilogue];
}

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "unknown status";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  emulated_cuda::CountLibraryObject();
  *handle = new cublasLtContext{kMagic};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  emulated_cuda::CountLibraryObject();
  *desc = new Desc{.compute = compute, .scale = scale};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return Assign(desc->transa, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return Assign(desc->transb, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return Assign(desc->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return Assign(desc->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return Assign(desc->aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return Assign(desc->aux_ld, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                          uint64_t rows, uint64_t cols, int64_t ld) {
  emulated_cuda::CountLibraryObject();
  *layout = new Layout{.type = type,
                       .rows = static_cast<int64_t>(rows),
                       .cols = static_cast<int64_t>(cols),
                       .ld = ld};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return Assign(layout->batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return Assign(layout->stride, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  emulated_cuda::CountLibraryObject();
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return Assign(preference->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return Assign(preference->reduction, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return Assign(preference->align_a, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return Assign(preference->align_b, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return Assign(preference->align_c, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return Assign(preference->align_d, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

// The one algorithm takes all that the preferences offer: it needs the whole workspace and every
// alignment promised.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  if (handle == nullptr || handle->magic != kMagic) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (requested < 1) return CUBLAS_STATUS_INVALID_VALUE;
  *found = 0;
  const cublasStatus_t status = Check(*desc, *a, *b, *c, *d);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  results[0] = {
      .algo = {{Fingerprint(*desc, *a, *b, *d), preference->workspace, preference->align_a,
                preference->align_b, std::max(preference->align_c, preference->align_d),
                desc->bias == nullptr ? 0 : LowestBit(desc->bias),
                desc->aux == nullptr ? 0 : LowestBit(desc->aux), 0}},
      .workspaceSize = preference->workspace,
      .state = CUBLAS_STATUS_SUCCESS,
      .wavesCount = 1};
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  if (handle == nullptr || handle->magic != kMagic) return CUBLAS_STATUS_NOT_INITIALIZED;
  const cublasStatus_t status = Check(*desc, *a_layout, *b_layout, *c_layout, *d_layout);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const auto& needs = algo->data;
  // "workspaceSizeInBytes is less than workspace required by the configured algo"; "must be
  // aligned to at least a multiple of 256 bytes".
  const bool workspace_fits = workspace_bytes >= needs[1] && IsAligned(workspace, 256) &&
                              (needs[1] == 0 || workspace != nullptr);
  const bool aligned = IsAligned(a, needs[2]) && IsAligned(b, needs[3]) && IsAligned(d, needs[4]) &&
                       IsAligned(desc->bias, needs[5]) && IsAligned(desc->aux, needs[6]) &&
                       IsAligned(a, SizeOf(a_layout->type)) && IsAligned(d, SizeOf(d_layout->type));
  if (needs[0] != Fingerprint(*desc, *a_layout, *b_layout, *d_layout) || !workspace_fits ||
      !aligned || c != d) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  {
    const std::lock_guard<std::mutex> lock(counting);
    ++products[desc->epilogue];
  }
  const Call call{*desc,
                  *a_layout,
                  *b_layout,
                  *d_layout,
                  a,
                  b,
                  d,
                  Load(alpha, desc->scale, 0),
                  Load(beta, desc->scale, 0),
                  workspace,
                  static_cast<int64_t>(needs[1])};
  const cudaError_t queued = emulated_cuda::Queue(stream, "cublasLtMatmul", [call] { call.Run(); });
  return queued == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
