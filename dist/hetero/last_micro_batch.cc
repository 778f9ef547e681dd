#include "dist/hetero/last_micro_batch.h"

#include <algorithm>

namespace pando {

int64_t MostWithin(const TimeCurve& curve, double seconds, int64_t most) {
  const auto times = curve.seconds().subspan(0, static_cast<size_t>(most) + 1);
  return std::upper_bound(times.begin(), times.end(), seconds) - times.begin() - 1;
}

LastMicroBatch SpreadLast(int64_t global_batch, int64_t samples,
                          const std::vector<const TimeCurve*>& curves,
                          std::vector<RankBatch>& batches) {
  LastMicroBatch last;
  last.steps = (global_batch + samples - 1) / samples;
  int64_t rest = global_batch - (last.steps - 1) * samples;
  const auto within = [&](double seconds) {
    int64_t sum = 0;
    for (size_t i = 0; i < curves.size(); ++i) {
      sum += MostWithin(*curves[i], seconds, batches[i].micro_batch);
    }
    return sum;
  };
  // The soonest is the time of some size on some device: between a time that is too short and one
  // that is enough, until no size lies between them.
  double enough = 0, short_of = -1;
  for (size_t i = 0; i < curves.size(); ++i) {
    enough = std::max(enough, curves[i]->At(batches[i].micro_batch));
  }
  while (true) {
    std::vector<double> between;
    for (size_t i = 0; i < curves.size(); ++i) {
      const int64_t most = batches[i].micro_batch;
      const int64_t from = short_of < 0 ? 0 : MostWithin(*curves[i], short_of, most) + 1;
      const auto times = curves[i]->seconds().subspan(0, static_cast<size_t>(most) + 1);
      const int64_t end = std::lower_bound(times.begin(), times.end(), enough) - times.begin();
      if (from < end) between.push_back(curves[i]->At((from + end - 1) / 2));
    }
    if (between.empty()) break;
    const auto median = between.begin() + static_cast<int64_t>(between.size() / 2);
    std::nth_element(between.begin(), median, between.end());
    (within(*median) >= rest ? enough : short_of) = *median;
  }
  last.seconds = enough;
  for (size_t i = 0; i < curves.size(); ++i) {
    batches[i].micro_steps = last.steps;
    batches[i].last_micro_batch =
        std::min(rest, MostWithin(*curves[i], enough, batches[i].micro_batch));
    rest -= batches[i].last_micro_batch;
  }
  return last;
}

}  // namespace pando
