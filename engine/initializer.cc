#include "engine/initializer.h"

#include <cmath>
#include <string>

#include "engine/cpu/parallel.h"
#include "engine/random.h"

namespace pando {
namespace {

// The normal transform below uses only +, -, *, / and sqrt on doubles (all exactly rounded by IEEE
// 754; this file is compiled without contraction to FMA), because a library's log and cos may
// differ in the last bit between processors, and then replicas on mixed machines would start apart.

/// log(x) for normal x > 0: exponent, and atanh series on a mantissa in [sqrt(1/2), sqrt(2)).
/// The series' first left-out term is below 1e-17.
double Log(double x) {
  uint64_t bits = __builtin_bit_cast(uint64_t, x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = __builtin_bit_cast(double, (bits & 0xFFFFFFFFFFFFFull) | 0x3FF0000000000000ull);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double z = (m - 1) / (m + 1);
  const double z2 = z * z;
  double sum = 0;
  for (int k = 21; k >= 1; k -= 2) sum = sum * z2 + 1.0 / k;
  return 2 * z * sum + exponent * 0.6931471805599453;
}

/// cos and sin of 2 pi u for u in [0, 1): reduction to an eighth of a turn is exact, then Taylor
/// series up to terms below 1e-17.
void CosSinTurn(double u, double* cosine, double* sine) {
  const int quadrant =
      static_cast<int>(std::floor(u * 4 + 0.5));  // nearest multiple of a quarter turn
  const double x = (u - quadrant * 0.25) * 6.283185307179586;
  const double x2 = x * x;
  double c = 1, s = 1;
  for (int k = 16; k >= 2; k -= 2) {
    c = 1 - x2 / (k * (k - 1)) * c;
    s = 1 - x2 / (k * (k + 1)) * s;
  }
  s *= x;
  switch (quadrant & 3) {
    case 0:
      *cosine = c, *sine = s;
      break;
    case 1:
      *cosine = -s, *sine = c;
      break;
    case 2:
      *cosine = -c, *sine = -s;
      break;
    default:
      *cosine = s, *sine = -c;
  }
}

/// Four standard normals from one block (Box and Muller, 1958), 32 bits of each uniform.
void Normals(const Philox4& bits, double out[4]) {
  for (int64_t pair = 0; pair < 2; ++pair) {
    const double u = (bits.v[2 * pair] + 1.0) * 0x1p-32;  // (0, 1]
    const double radius = std::sqrt(-2 * Log(u));
    double cosine = 0, sine = 0;
    CosSinTurn(bits.v[2 * pair + 1] * 0x1p-32, &cosine, &sine);
    out[2 * pair] = radius * cosine;
    out[2 * pair + 1] = radius * sine;
  }
}

}  // namespace

void Initializer::Fill(uint64_t seed, std::string_view name, int64_t begin,
                       std::span<float> out) const {
  // The name alone must not decide: site is 32 bits, so the step word carries a second hash.
  const std::string full(name);
  const RandomKey key{.seed = seed,
                      .site = HashName(("init:" + full).c_str()),
                      .step = HashName((full + ":init").c_str())};
  const Initializer self = *this;
  ParallelFor(static_cast<int64_t>(out.size()), 1 << 14, [&](int64_t from, int64_t to) {
    int64_t drawn = -1;
    double values[4] = {self.a, self.a, self.a, self.a};
    for (int64_t i = from; i < to; ++i) {
      const int64_t element = begin + i;
      if (self.kind != Kind::kConstant && element / 4 != drawn) {
        drawn = element / 4;
        const Philox4 bits = RandomBlock(key, 0, static_cast<uint64_t>(element));
        if (self.kind == Kind::kNormal) {
          Normals(bits, values);
          for (double& v : values) v = self.a + self.b * v;
        } else {
          for (int k = 0; k < 4; ++k) {
            values[k] = self.a + (self.b - self.a) * (bits.v[k] * 0x1p-32);
          }
        }
      }
      out[i] = static_cast<float>(values[element % 4]);
    }
  });
}

}  // namespace pando
