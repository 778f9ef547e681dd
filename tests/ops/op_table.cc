#include "tests/ops/op_table.h"

#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ops/arithmetic.h"
#include "tests/samples.h"

namespace pando {

const std::vector<OpEntry>& OpTable() {
  static const auto* table = [] {
    auto* t = new std::vector<OpEntry>;
    AddElementwiseOps(*t);
    AddChoiceOps(*t);
    AddReductions(*t);
    AddShapeOps(*t);
    AddMatrixOps(*t);
    AddLinearOps(*t);
    AddRowOps(*t);
    AddLosses(*t);
    AddAttention(*t);
    return t;
  }();
  return *table;
}

std::vector<size_t> OpIndices() {
  std::vector<size_t> indices(OpTable().size());
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

int64_t CountOf(const std::vector<int64_t>& dims) { return Shape(dims).numel(); }

HostTensor Spread(std::vector<int64_t> dims, double low, double high, int64_t seed) {
  HostTensor t{std::move(dims), {}};
  const int64_t n = CountOf(t.dims);
  for (int64_t i = 0; i < n; ++i) {
    t.values.push_back(low + (high - low) * (0.5 + Sample(i + 1009 * seed, 0.5)));
  }
  return t;
}

HostTensor AwayFromZero(std::vector<int64_t> dims, double low, double high, int64_t seed) {
  HostTensor t = Spread(std::move(dims), low, high, seed);
  for (size_t i = 0; i < t.values.size(); ++i) {
    if (Sample(static_cast<int64_t>(i) + 31 + seed) < 0) t.values[i] = -t.values[i];
  }
  return t;
}

HostTensor Distinct(std::vector<int64_t> dims, int64_t seed) {
  HostTensor t{std::move(dims), {}};
  const int64_t n = CountOf(t.dims);
  if (n == 0) return t;
  int64_t step = 617;
  while (std::gcd(step, n) > 1) ++step;  // so that i -> i * step runs through all residues
  for (int64_t i = 0; i < n; ++i) {
    const int64_t place = ((i + seed) * step) % n;
    t.values.push_back(4 * (static_cast<double>(place) + 0.5) / static_cast<double>(n) - 2);
  }
  return t;
}

std::string DimsName(const std::vector<int64_t>& dims) {
  return absl::StrCat("[", absl::StrJoin(dims, ", "), "]");
}

std::vector<int64_t> SampleIds(int64_t count, int64_t first) {
  std::vector<int64_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

Tensor GeluOracle(const Tensor& x) {
  const Tensor cubic = Add(x, Affine(Mul(Square(x), x), 0.044715));
  return Mul(Affine(x, 0.5), Affine(Tanh(Affine(cubic, std::sqrt(2 / M_PI))), 1, 1));
}

Tensor F32(Device& device, std::vector<int64_t> dims) {
  return Tensor::Empty(Shape(std::move(dims)), DType::kF32, device);
}
Tensor Bf16(Device& device, std::vector<int64_t> dims) {
  return Tensor::Empty(Shape(std::move(dims)), DType::kBF16, device);
}
Tensor I32(Device& device, std::vector<int64_t> dims) {
  return Tensor::Empty(Shape(std::move(dims)), DType::kI32, device);
}
Tensor I64(Device& device, std::vector<int64_t> dims) {
  return Tensor::Empty(Shape(std::move(dims)), DType::kI64, device);
}

}  // namespace pando
