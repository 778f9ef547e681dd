#include "dist/hetero/time_curve.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace pando {
namespace {

// Sizes are looked up in a table.
constexpr int64_t kLargest = int64_t{1} << 20;

struct Knot {
  double x, y;
  double weight = 1;
};

/// One knot per size.
std::vector<Knot> Means(std::vector<TimeCurve::Point> points) {
  std::sort(points.begin(), points.end(),
            [](const auto& a, const auto& b) { return a.batch < b.batch; });
  std::vector<Knot> knots;
  for (const TimeCurve::Point& p : points) {
    const auto x = static_cast<double>(p.batch);
    if (!knots.empty() && knots.back().x == x) {
      Knot& k = knots.back();
      k.y += (p.seconds - k.y) / (k.weight + 1);
      ++k.weight;
    } else {
      knots.push_back({x, p.seconds});
    }
  }
  return knots;
}

/// The nearest that never falls, by least squares.
void MakeMonotone(std::vector<Knot>& knots) {
  struct Block {
    double mean, weight;
    size_t size;
  };
  std::vector<Block> blocks;
  for (const Knot& k : knots) {
    blocks.push_back({k.y, k.weight, 1});
    while (blocks.size() > 1 && blocks[blocks.size() - 2].mean > blocks.back().mean) {
      const Block last = blocks.back();
      blocks.pop_back();
      Block& b = blocks.back();
      b.mean = (b.mean * b.weight + last.mean * last.weight) / (b.weight + last.weight);
      b.weight += last.weight;
      b.size += last.size;
    }
  }
  size_t i = 0;
  for (const Block& b : blocks) {
    for (size_t end = i + b.size; i < end; ++i) knots[i].y = b.mean;
  }
}

/// Slopes of the cubic at its knots: the harmonic mean of those beside it, weighted by lengths
/// (Fritsch and Butland), 0 where the curve is flat on a side.
std::vector<double> Slopes(const std::vector<Knot>& knots) {
  const size_t n = knots.size();
  std::vector<double> length(n - 1), chord(n - 1), slope(n);
  for (size_t i = 0; i + 1 < n; ++i) {
    length[i] = knots[i + 1].x - knots[i].x;
    chord[i] = (knots[i + 1].y - knots[i].y) / length[i];
  }
  slope.front() = chord.front();
  slope.back() = chord.back();
  for (size_t i = 1; i + 1 < n; ++i) {
    if (chord[i - 1] <= 0 || chord[i] <= 0) continue;
    const double before = 2 * length[i] + length[i - 1], behind = length[i] + 2 * length[i - 1];
    slope[i] = (before + behind) / (before / chord[i - 1] + behind / chord[i]);
  }
  return slope;
}

double Hermite(const Knot& a, const Knot& b, double slope_a, double slope_b, double x) {
  const double h = b.x - a.x, t = (x - a.x) / h;
  const double t2 = t * t, t3 = t2 * t;
  return (2 * t3 - 3 * t2 + 1) * a.y + (t3 - 2 * t2 + t) * h * slope_a + (3 * t2 - 2 * t3) * b.y +
         (t3 - t2) * h * slope_b;
}

}  // namespace

absl::StatusOr<TimeCurve> TimeCurve::Fit(std::vector<Point> points) {
  if (points.empty()) return absl::InvalidArgumentError("a curve needs a measured size");
  for (const Point& p : points) {
    if (p.batch >= 1 && p.batch <= kLargest && p.seconds > 0 && std::isfinite(p.seconds)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("a micro-batch of ", p.batch, " in ", p.seconds, " s is no measurement"));
  }
  std::vector<Knot> knots = Means(std::move(points));
  MakeMonotone(knots);
  // Below the smallest size: the straight line through the first two, as far as it is above 0.
  if (knots[0].x > 1) {
    const double slope = knots.size() == 1 ? knots[0].y / knots[0].x
                                           : (knots[1].y - knots[0].y) / (knots[1].x - knots[0].x);
    const double first = knots[0].y - slope * (knots[0].x - 1);
    knots.insert(knots.begin(), {1, std::max(first, knots[0].y / knots[0].x)});
  }
  TimeCurve curve;
  const auto last = static_cast<int64_t>(knots.back().x);
  curve.seconds_.reserve(static_cast<size_t>(last) + 1);
  curve.seconds_.push_back(knots.front().y);
  const std::vector<double> slopes = knots.size() > 1 ? Slopes(knots) : std::vector<double>(1);
  size_t i = 0;
  for (int64_t batch = 2; batch <= last; ++batch) {
    const auto x = static_cast<double>(batch);
    while (knots[i + 1].x < x) ++i;
    const double y = Hermite(knots[i], knots[i + 1], slopes[i], slopes[i + 1], x);
    curve.seconds_.push_back(std::max(y, curve.seconds_.back()));  // rounding
  }
  return curve;
}

}  // namespace pando
