// What the table of operations cannot see of the kernels on rows, on whichever device is linked:
// data that are not aligned, results over their inputs, sums added to what is there, masks to the
// bit.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ops/kernel_tables.h"
#include "tests/ops/device_array.h"
#include "tests/samples.h"

namespace pando {
namespace {

template <typename T>
class RowDeviceTest : public testing::Test {};
using Types = testing::Types<float, BFloat16, Float16>;
TYPED_TEST_SUITE(RowDeviceTest, Types);

constexpr int64_t kShifts[] = {0, 1};  // elements behind an aligned address
constexpr float kInf = std::numeric_limits<float>::infinity();

const RandomKey kKey{.seed = 12345678901ull, .site = 17, .step = 3};

TYPED_TEST(RowDeviceTest, DropoutDropsWhereTheBitsSay) {
  using T = TypeParam;
  const double p = 0.3;
  const std::vector<int64_t> ids = {5, int64_t{1} << 40, 0};
  DeviceArray<int64_t> sample_ids(ids);
  const auto scale = static_cast<float>(1 / (1 - p));
  for (const int64_t elements : {1, 7, 8, 255, 2056, 4099}) {
    for (const int64_t shift : kShifts) {
      const std::vector<T> x = Samples<T>(3 * elements);
      const std::vector<T> residual = Samples<T>(3 * elements, 500);
      DeviceArray<T> on_device(x, shift), onto(residual, shift), y(3 * elements, shift);
      DropoutArgs args{on_device.data(), nullptr, y.data(), sample_ids.data(), DTypeOf<T>::value, 3,
                       elements,         p,       kKey};
      LaunchOnTestDevice(dropout_kernels.For(TestDevice()).run, args);
      args.residual = args.y = onto.data();
      LaunchOnTestDevice(dropout_kernels.For(TestDevice()).run, args);
      const std::vector<T> got = y.Values();
      std::vector<double> want(x.size());
      for (int64_t i = 0; i < 3 * elements; ++i) {
        const uint32_t bits = RandomBits(kKey, ids[i / elements], i % elements);
        const float kept = bits < DropThreshold(p) ? 0 : scale * ToFloat(x[i]);
        ASSERT_EQ(ToFloat(got[i]), ToFloat(RoundTo<T>(kept))) << elements << " at " << i;
        want[i] = double{ToFloat(residual[i])} + kept;
      }
      ExpectClose(onto.Values(), want, 2, 2);
    }
  }
}

TYPED_TEST(RowDeviceTest, SoftmaxInPlace) {
  using T = TypeParam;
  const SoftmaxKernels& kernels = softmax_kernels.For(TestDevice());
  for (const RowShape s : {RowShape{3, 64}, {2, 67}, {2, 4104}}) {
    for (const int64_t shift : kShifts) {
      std::vector<T> x = Samples<T>(s.rows * s.cols, 0, 4);
      x[s.cols - 1] = RoundTo<T>(-kInf);  // excluded
      const std::vector<T> dy = Samples<T>(s.rows * s.cols, 1000);
      DeviceArray<T> y(x, shift), dx(dy, shift);
      LaunchOnTestDevice(kernels.forward,
                         SoftmaxForwardArgs{y.data(), y.data(), DTypeOf<T>::value, s.rows, s.cols});
      LaunchOnTestDevice(kernels.backward, SoftmaxBackwardArgs{y.data(), dx.data(), dx.data(),
                                                               DTypeOf<T>::value, s.rows, s.cols});
      const std::vector<double> stored = Doubles(y.Values());
      std::vector<double> want(x.size()), gradient(x.size());
      for (int64_t r = 0; r < s.rows; ++r) {
        double sum = 0, dot = 0;
        for (int64_t i = r * s.cols; i < (r + 1) * s.cols; ++i) {
          sum += want[i] = std::exp(ToFloat(x[i]));
          dot += stored[i] * ToFloat(dy[i]);
        }
        for (int64_t i = r * s.cols; i < (r + 1) * s.cols; ++i) {
          want[i] /= sum;
          gradient[i] = stored[i] * (ToFloat(dy[i]) - dot);
        }
      }
      // Some roundings, and those of sums of up to 4104 terms, of results up to a tenth.
      ExpectClose(y.Values(), want, 16, 0.1);
      ExpectClose(dx.Values(), gradient, 16, 0.1);
      EXPECT_EQ(stored[s.cols - 1], 0);
    }
  }
}

TYPED_TEST(RowDeviceTest, GeluInPlaceAndTheSumsOfItsBias) {
  using T = TypeParam;
  const GeluKernels& kernels = gelu_kernels.For(TestDevice());
  for (const RowShape s : {RowShape{1, 8}, {5, 31}, {1031, 24}, {67, 520}}) {
    for (const int64_t shift : kShifts) {
      const std::vector<T> x = Samples<T>(s.rows * s.cols, 0, 3);
      const std::vector<T> bias = Samples<T>(s.cols, 1000);
      const std::vector<T> dy = Samples<T>(s.rows * s.cols, 2000);
      const std::vector<float> before = Samples<float>(s.cols, 3000);
      DeviceArray<T> pre(x, shift), shifts(bias, shift), y(s.rows * s.cols, shift);
      DeviceArray<T> over(x, shift), dx(dy, shift);
      DeviceArray<float> dbias(before);
      GeluForwardArgs forward{pre.data(),        shifts.data(), pre.data(), y.data(),
                              DTypeOf<T>::value, s.rows,        s.cols};
      LaunchOnTestDevice(kernels.forward, forward);
      forward.x = forward.y = over.data();
      forward.pre = nullptr;
      LaunchOnTestDevice(kernels.forward, forward);
      Tensor scratch = DeviceScratch(kernels.backward_scratch(s.rows, s.cols, DTypeOf<T>::value));
      LaunchOnTestDevice(
          kernels.backward,
          GeluBackwardArgs{pre.data(), dx.data(), dx.data(), dbias.data(), true, DTypeOf<T>::value,
                           s.rows, s.cols, scratch.mutable_data()});
      std::vector<double> sums(x.size()), value(x.size()), gradient(x.size());
      std::vector<double> bias_gradient = Doubles(before);
      for (size_t i = 0; i < x.size(); ++i) {
        const auto c = static_cast<int64_t>(i) % s.cols;
        const double u = sums[i] = ToFloat(RoundTo<T>(ToFloat(x[i]) + ToFloat(bias[c])));
        const double k = std::sqrt(2 / M_PI);
        const double t = std::tanh(k * (u + 0.044715 * u * u * u));
        value[i] = u * (1 + t) / 2;
        gradient[i] =
            ToFloat(dy[i]) * ((1 + t) / 2 + u / 2 * (1 - t * t) * k * (1 + 3 * 0.044715 * u * u));
        bias_gradient[c] += gradient[i];
      }
      EXPECT_EQ(Doubles(pre.Values()), sums);
      ExpectClose(y.Values(), value, 8, 4);
      PANDO_EXPECT_SAME_BITS(over.Values(), y.Values());
      ExpectClose(dx.Values(), gradient, 8, 1);
      // Sums over rows of terms around 1: a few roundings at the size of the sum.
      ExpectClose(dbias.Values(), bias_gradient, 4, 10 + static_cast<double>(s.rows));
    }
  }
}

TYPED_TEST(RowDeviceTest, ColumnSumsAreWrittenOrAdded) {
  using T = TypeParam;
  const ColumnSumsKernels& kernels = column_sums_kernels.For(TestDevice());
  for (const RowShape s : {RowShape{0, 5}, {1, 1}, {33, 257}, {300, 64}, {5000, 8}}) {
    for (const int64_t shift : kShifts) {
      const std::vector<T> x = Samples<T>(s.rows * s.cols);
      DeviceArray<T> rows(x, shift);
      DeviceArray<float> sums(Samples<float>(s.cols, 1000));
      Tensor scratch = DeviceScratch(kernels.scratch(s.rows, s.cols, DTypeOf<T>::value));
      std::vector<double> want(s.cols);
      for (size_t i = 0; i < x.size(); ++i) want[i % s.cols] += ToFloat(x[i]);
      for (const bool accumulate : {false, true}) {
        LaunchOnTestDevice(
            kernels.run, ColumnSumsArgs{rows.data(), DTypeOf<T>::value, s.rows, s.cols, sums.data(),
                                        accumulate, scratch.mutable_data()});
        ExpectClose(sums.Values(), want, 4, 10 + static_cast<double>(s.rows));
        for (double& v : want) v *= 2;
      }
    }
  }
}

// The definition of LayerNorm and of its gradients, in f64.
struct NormReference {
  NormReference(const std::vector<double>& x, const std::vector<double>& weight,
                const std::vector<double>& bias, const std::vector<double>& dy,
                const std::vector<double>& dsum, RowShape s, double eps)
      : y(x.size()), dx(x.size()), dweight(s.cols), dbias(s.cols) {
    const auto n = static_cast<double>(s.cols);
    for (int64_t first = 0; first < s.rows * s.cols; first += s.cols) {
      double mean = 0, variance = 0, g = 0, g_xhat = 0;
      for (int64_t c = 0; c < s.cols; ++c) mean += x[first + c] / n;
      for (int64_t c = 0; c < s.cols; ++c) variance += std::pow(x[first + c] - mean, 2) / n;
      const double rstd = 1 / std::sqrt(variance + eps);
      const auto xhat = [&](int64_t c) { return (x[first + c] - mean) * rstd; };
      for (int64_t c = 0; c < s.cols; ++c) {
        const double d = dy[first + c];
        y[first + c] = xhat(c) * weight[c] + bias[c];
        g += d * weight[c] / n;
        g_xhat += d * weight[c] * xhat(c) / n;
        dweight[c] += d * xhat(c);
        dbias[c] += d;
      }
      for (int64_t c = 0; c < s.cols; ++c) {
        dx[first + c] = dsum[first + c] + rstd * (dy[first + c] * weight[c] - g - xhat(c) * g_xhat);
      }
    }
  }

  std::vector<double> y, dx, dweight, dbias;
};

TYPED_TEST(RowDeviceTest, LayerNormOverItsInputs) {
  using T = TypeParam;
  const LayerNormKernels& kernels = layer_norm_kernels.For(TestDevice());
  // Beyond 1024 packs of 16 bytes in a row, backward's sums are in no block's registers.
  for (const RowShape s : {RowShape{1, 8}, {19, 257}, {3, 520}, {2, 4099}, {600, 8}, {3, 8200}}) {
    for (const int64_t shift : kShifts) {
      const std::vector<T> x = Samples<T>(s.rows * s.cols, 0, 2);
      const std::vector<T> residual = Samples<T>(s.rows * s.cols, 1000);
      const std::vector<T> weight = Samples<T>(s.cols, 2000), bias = Samples<T>(s.cols, 3000);
      const std::vector<T> dy = Samples<T>(s.rows * s.cols, 4000);
      const std::vector<T> dsum = Samples<T>(s.rows * s.cols, 5000);
      std::vector<T> sum(x.size());
      for (size_t i = 0; i < x.size(); ++i) {
        sum[i] = RoundTo<T>(ToFloat(x[i]) + ToFloat(residual[i]));
      }
      const NormReference want(Doubles(sum), Doubles(weight), Doubles(bias), Doubles(dy),
                               Doubles(dsum), s, 0.25);

      DeviceArray<T> over(x, shift), other(residual, shift), w(weight, shift), b(bias, shift);
      DeviceArray<T> y(s.rows * s.cols, shift), over_dy(dy, shift), over_dsum(dsum, shift);
      DeviceArray<float> mean(s.rows), rstd(s.rows), dweight(s.cols), dbias(s.cols);
      LaunchOnTestDevice(
          kernels.forward,
          LayerNormForwardArgs{over.data(), other.data(), over.data(), w.data(), b.data(), y.data(),
                               mean.data(), rstd.data(), DTypeOf<T>::value, s.rows, s.cols, 0.25});
      PANDO_EXPECT_SAME_BITS(over.Values(), sum);
      ExpectClose(y.Values(), want.y, 20, 4);

      // dx over dsum, then, without sums, over dy; one of the sums written, then both added to.
      Tensor scratch = DeviceScratch(kernels.backward_scratch(s.rows, s.cols, DTypeOf<T>::value));
      LayerNormBackwardArgs args{
          over.data(),       w.data(), over_dy.data(), mean.data(),           rstd.data(),
          over_dsum.data(),  y.data(), nullptr,        dbias.data(),          false,
          DTypeOf<T>::value, s.rows,   s.cols,         scratch.mutable_data()};
      LaunchOnTestDevice(kernels.backward, args);
      args.dweight = dweight.data();
      args.accumulate = true;
      args.dx = over_dsum.data();
      LaunchOnTestDevice(kernels.backward, args);
      DeviceArray<T> dsum_again(dsum, shift);
      args.dsum = dsum_again.data();
      args.dx = over_dy.data();
      args.dweight = args.dbias = nullptr;
      LaunchOnTestDevice(kernels.backward, args);
      ExpectClose(y.Values(), want.dx, 20, 10);
      PANDO_EXPECT_SAME_BITS(over_dsum.Values(), y.Values());
      PANDO_EXPECT_SAME_BITS(over_dy.Values(), y.Values());
      const double size = 10 + static_cast<double>(s.rows);
      ExpectClose(dweight.Values(), want.dweight, 4, size);
      std::vector<double> twice = want.dbias;
      for (double& v : twice) v *= 2;
      ExpectClose(dbias.Values(), twice, 4, 2 * size);
    }
  }
}

}  // namespace
}  // namespace pando
