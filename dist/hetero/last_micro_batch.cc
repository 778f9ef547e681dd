#include "dist/hetero/last_micro_batch.h"

#include <algorithm>

#include "dist/hetero/device_groups.h"

namespace pando {

LastMicroBatch SpreadLast(int64_t global_batch, int64_t samples,
                          const std::vector<const TimeCurve*>& curves,
                          std::vector<RankBatch>& batches) {
  LastMicroBatch last;
  last.steps = (global_batch + samples - 1) / samples;
  int64_t rest = global_batch - (last.steps - 1) * samples;
  std::vector<Takers> takers;
  takers.reserve(curves.size());
  for (size_t i = 0; i < curves.size(); ++i) {
    takers.push_back({curves[i], batches[i].micro_batch, 1});
  }
  last.seconds = SoonestWithin(rest, takers);
  for (size_t i = 0; i < curves.size(); ++i) {
    batches[i].micro_steps = last.steps;
    batches[i].last_micro_batch =
        std::min(rest, MostWithin(*curves[i], last.seconds, batches[i].micro_batch));
    rest -= batches[i].last_micro_batch;
  }
  return last;
}

}  // namespace pando
