#pragma once

// Small clusters drawn at random, and the best of all their plans found by going through them with
// nothing in common with the planners but the prediction of a plan's time.

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "dist/hetero/plan_problem.h"
#include "dist/hetero/step_model.h"
#include "engine/error.h"

namespace pando {

struct ProblemSize {
  int devices = 3;
  int64_t largest_batch = 4;
  int64_t global_batch = 10;
};

class Draw {
 public:
  explicit Draw(uint64_t seed) : generator_(seed) {}
  double Real(double low, double high) {
    return low + (high - low) * static_cast<double>(generator_() >> 11) * 0x1p-53;
  }
  int64_t Int(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(generator_() % static_cast<uint64_t>(high - low + 1));
  }

 private:
  std::mt19937_64 generator_;
};

inline TimeCurve RandomCurve(Draw& draw, int64_t largest, double slowness) {
  std::vector<TimeCurve::Point> points;
  double seconds = draw.Real(0, 2);
  for (int64_t b = 1; b <= largest; ++b) {
    seconds += draw.Real(0.2, 1);
    points.push_back({b, slowness * seconds});
  }
  return *TimeCurve::Fit(points);
}

/// Memory is short, links matter, and some devices are much slower than others.
inline PlanProblem RandomProblem(uint64_t seed, const ProblemSize& size) {
  Draw draw(seed);
  PlanProblem p;
  p.global_batch = draw.Int(1, size.global_batch);
  p.units = {{128 * draw.Int(10, 40), 3}};
  for (int64_t u = draw.Int(1, 5); u > 0; --u) p.units.push_back({int64_t{128} * 20, 2});
  p.dtype = draw.Int(0, 1) == 0 ? DType::kF32 : DType::kBF16;
  const auto state = static_cast<double>(18 * p.parameters());
  const double link = draw.Real(0, 1) < 0.3 ? 1e3 : 1e5;
  const double optimizer = draw.Real(0, 2e-4);
  for (int d = 0; d < size.devices; ++d) {
    DeviceProfile device;
    if (d > 0 && draw.Int(0, 2) == 0) {
      device = p.devices.back();
    } else {
      device.kind = d;
      const double slowness = std::exp(draw.Real(0, 2));
      const int64_t largest = draw.Int(1, size.largest_batch);
      const auto per_sample = static_cast<int64_t>(draw.Real(0.05, 0.3) * state);
      device.computes.push_back({false, RandomCurve(draw, largest, slowness), 1000, per_sample});
      if (draw.Int(0, 3) == 0) {
        device.computes.push_back(
            {true, RandomCurve(draw, largest, 1.3 * slowness), 1000, per_sample / 4});
      }
      device.memory = static_cast<int64_t>(draw.Real(0.4, 2.5) * state);
      device.optimizer_seconds = optimizer * draw.Real(0.5, 2);
      device.between = {link * draw.Real(0.5, 2), 1e-3 * draw.Real(0, 1)};
      device.within = {4 * device.between.bytes_per_second, 0.1 * device.between.latency};
      device.peak_flops = 1 / slowness;
    }
    device.node = d / 2;
    device.name = "device " + std::to_string(d);
    p.devices.push_back(device);
  }
  return p;
}

}  // namespace pando
