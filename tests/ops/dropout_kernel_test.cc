#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/kernels/dropout.h"
#include "tests/isa_tables.h"
#include "tests/samples.h"

namespace pando {
namespace {

const RandomKey kKey{.seed = 12345678901ull, .site = 17, .step = 3};

class DropoutKernelTest : public testing::TestWithParam<IsaTable<DropoutKernels>> {
 protected:
  template <typename T>
  std::vector<T> Run(const std::vector<T>& x, const T* residual, const std::vector<int64_t>& ids,
                     double p) const {
    std::vector<T> y(x.size());
    const auto samples = static_cast<int64_t>(ids.size());
    const int64_t elements = samples == 0 ? 0 : static_cast<int64_t>(x.size()) / samples;
    kernels().run(
        {x.data(), residual, y.data(), ids.data(), DTypeOf<T>::value, samples, elements, p, kKey},
        nullptr);
    return y;
  }
  template <typename T>
  void Check() const;
  const DropoutKernels& kernels() const { return *GetParam().table; }
};

template <typename T>
void DropoutKernelTest::Check() const {
  using C = ComputeType<T>;
  const double p = 0.3;
  for (int64_t elements : {1, 255, 257, 20011}) {
    const std::vector<int64_t> ids = {5, int64_t{1} << 40, 0};
    const std::vector<T> x = Samples<T>(3 * elements);
    const std::vector<T> residual = Samples<T>(3 * elements, 500);
    const std::vector<T> y = Run<T>(x, nullptr, ids, p);
    const std::vector<T> onto = Run(x, residual.data(), ids, p);
    const auto scale = static_cast<C>(1 / (1 - p));
    std::vector<double> want(x.size());
    for (int64_t i = 0; i < 3 * elements; ++i) {
      const uint32_t bits = RandomBits(kKey, ids[i / elements], i % elements);
      const C kept = bits < DropThreshold(p) ? C(0) : scale * ToFloat(x[i]);
      ASSERT_EQ(ToFloat(y[i]), ToFloat(RoundTo<T>(kept)));
      want[i] = ToFloat(residual[i]) + kept;
    }
    ExpectClose(onto, want, 2, 2);
    const WithThreads one(1);
    PANDO_EXPECT_SAME_BITS(Run<T>(x, nullptr, ids, p), y);
  }
}

TEST_P(DropoutKernelTest, DropsWhereTheBitsSay) {
  Check<float>();
  Check<BFloat16>();
  Check<Float16>();
  Check<double>();
}

TEST_P(DropoutKernelTest, ASampleDropsAlikeInAnyBatch) {
  const std::vector<float> x(size_t{2} * 777, 1.0f);
  const std::vector<float> together = Run<float>(x, nullptr, {41, 42}, 0.5);
  const std::vector<float> alone = Run<float>(std::vector<float>(777, 1.0f), nullptr, {42}, 0.5);
  PANDO_EXPECT_SAME_BITS(std::vector<float>(together.begin() + 777, together.end()), alone);
}

TEST_P(DropoutKernelTest, KeepsTheMean) {
  constexpr int64_t kN = 1 << 18;
  for (double p : {0.1, 0.5}) {
    const std::vector<float> y = Run<float>(std::vector<float>(kN, 1.0f), nullptr, {7}, p);
    double sum = 0;
    for (float v : y) sum += v;
    // Five standard errors of a scaled proportion.
    EXPECT_NEAR(sum / kN, 1.0, 5 * std::sqrt(p / (1 - p) / kN));
  }
}

TEST_P(DropoutKernelTest, NothingAndEverything) {
  const std::vector<float> x = Samples<float>(1000);
  EXPECT_EQ(Run<float>(x, nullptr, {1}, 0.0), x);
  EXPECT_EQ(Run<float>(x, x.data(), {1}, 1.0), x);
  EXPECT_TRUE(Run<float>({}, nullptr, {}, 0.5).empty());
  std::vector<float> in_place = x;  // y is x and the residual
  const int64_t id = 1;
  kernels().run(
      {in_place.data(), in_place.data(), in_place.data(), &id, DType::kF32, 1, 1000, 0.0, kKey},
      nullptr);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(in_place[i], 2 * x[i]);
}

}  // namespace

PANDO_INSTANTIATE_ISA_TABLES(DropoutKernelTest, DropoutKernels, kDropout);

}  // namespace pando
