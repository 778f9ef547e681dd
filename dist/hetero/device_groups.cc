#include "dist/hetero/device_groups.h"

#include <algorithm>
#include <numeric>

namespace pando {

int64_t MostWithin(const TimeCurve& curve, double seconds, int64_t most) {
  const auto times = curve.seconds().subspan(0, static_cast<size_t>(most) + 1);
  return std::upper_bound(times.begin(), times.end(), seconds) - times.begin() - 1;
}

double SoonestWithin(int64_t samples, const std::vector<Takers>& takers) {
  const auto within = [&](double seconds) {
    int64_t sum = 0;
    for (const Takers& t : takers) sum += t.count * MostWithin(*t.curve, seconds, t.most);
    return sum;
  };
  // It is the time of some size on some device: between a time that is too short and one that is
  // enough, until no size lies between them.
  double enough = 0, short_of = -1;
  for (const Takers& t : takers) enough = std::max(enough, t.curve->At(t.most));
  while (true) {
    std::vector<double> between;
    for (const Takers& t : takers) {
      const int64_t from = short_of < 0 ? 0 : MostWithin(*t.curve, short_of, t.most) + 1;
      const auto times = t.curve->seconds().subspan(0, static_cast<size_t>(t.most) + 1);
      const int64_t end = std::lower_bound(times.begin(), times.end(), enough) - times.begin();
      if (from < end) between.push_back(t.curve->At((from + end - 1) / 2));
    }
    if (between.empty()) return enough;
    const auto median = between.begin() + static_cast<int64_t>(between.size() / 2);
    std::nth_element(between.begin(), median, between.end());
    (within(*median) >= samples ? enough : short_of) = *median;
  }
}

std::optional<std::vector<double>> ShareOut(const std::vector<Holders>& holders) {
  double most = 0, speed = 0;
  for (const Holders& h : holders) {
    if (h.most < 0) return std::nullopt;
    most += h.most * static_cast<double>(h.count);
  }
  if (most < 1) return std::nullopt;
  // All take the same time, but for those that can't hold so much: in the order in which they reach
  // what they can.
  const auto seconds = [&](size_t i) { return std::max(holders[i].seconds, 1e-15); };
  std::vector<size_t> order(holders.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return holders[a].most * seconds(a) < holders[b].most * seconds(b);
  });
  for (size_t i = 0; i < holders.size(); ++i) {
    speed += static_cast<double>(holders[i].count) / seconds(i);
  }
  std::vector<double> shares(holders.size());
  double left = 1;
  for (const size_t i : order) {
    const auto count = static_cast<double>(holders[i].count);
    shares[i] = std::min(holders[i].most, std::max(0.0, left) / speed / seconds(i));
    left -= shares[i] * count;
    speed -= count / seconds(i);
  }
  return shares;
}

}  // namespace pando
