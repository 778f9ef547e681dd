#include "train/device_profiler.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "absl/strings/str_format.h"
#include "engine/allocator.h"
#include "engine/error.h"
#include "engine/random.h"
#include "train/train_step.h"

namespace pando {
namespace {

constexpr int kTimes = 3;
// Of the longer of two steps.
constexpr int64_t kMicroSteps = 3;

/// Gives a device back the budget that it had, and what it has cached to the system.
class Budget {
 public:
  Budget(Allocator& allocator, double margin)
      : allocator_(allocator), before_(allocator.stats().budget) {
    allocator_.ReleaseCached();
    allocator_.SetBudget(static_cast<int64_t>(static_cast<double>(before_) * (1 - margin)));
  }
  ~Budget() {
    allocator_.SetBudget(before_);
    allocator_.ReleaseCached();
  }
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  int64_t bytes() const { return allocator_.stats().budget; }

 private:
  Allocator& allocator_;
  int64_t before_;
};

class Profiler {
 public:
  Profiler(LanguageModel& model, Zero& parameters, const ProfileOptions& options)
      : model_(model), parameters_(parameters), options_(options) {}

  MeasuredDevice Run() {
    Allocator& allocator = parameters_.device().allocator();
    const Budget budget(allocator, options_.margin);
    MeasuredDevice measured;
    measured.memory = budget.bytes();
    FindLargest();
    // The ends of the curve in any case, between them as far as time allows.
    Time(1, measured);
    if (largest_ > 1) Time(largest_, measured);
    for (int64_t b = 2; b < largest_ && Elapsed() < options_.seconds; b *= 2) Time(b, measured);
    measured.compute.seconds = *TimeCurve::Fit(measured.points);
    measured.optimizer_seconds = TimeOptimizer();
    FitMemory(measured.compute);
    return measured;
  }

 private:
  using Clock = std::chrono::steady_clock;

  double Elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  /// Seconds of a step of so many micro-batches, and in bytes_ what it needed beside the state.
  double Step(int64_t batch, int64_t micro_steps) {
    const int64_t samples = batch * micro_steps;
    std::vector<int32_t> tokens(static_cast<size_t>(samples * options_.length) + 1);
    const RandomKey key{.seed = 1, .site = HashName("profile"), .step = 0};
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] =
          static_cast<int32_t>(RandomBits(key, 0, i) % static_cast<uint64_t>(model_.vocab_size()));
    }
    Allocator& allocator = parameters_.device().allocator();
    allocator.ReleaseCached();
    const int64_t before = allocator.stats().in_use;
    allocator.ResetPeak();
    TrainStep step(model_, parameters_, {}, batch, options_.length);
    const std::span<const int32_t> all(tokens);
    const auto start = Clock::now();
    step.Run({0, samples, options_.length, all.first(all.size() - 1), all.subspan(1)},
             std::vector<int64_t>(static_cast<size_t>(micro_steps), batch), steps_++, 0);
    parameters_.device().Synchronize();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    bytes_ = allocator.stats().peak_in_use - before;
    return seconds;
  }

  /// Whether twice as much would take more than the time there is.
  bool IsSlow() const { return 2 * step_seconds_ * kTimes * (1 + kMicroSteps) > options_.seconds; }

  bool Fits(int64_t batch) {
    try {
      step_seconds_ = Step(batch, 1);
    } catch (const OutOfMemory&) {
      if (batch == 1) throw;
      return false;
    }
    needed_.push_back({batch, bytes_});
    return true;
  }

  void FindLargest() {
    Fits(1);
    int64_t too_large = 2;
    while (too_large <= options_.largest && !IsSlow() && Fits(too_large)) too_large *= 2;
    largest_ = too_large / 2;
    too_large = IsSlow() ? largest_ + 1 : std::min(too_large, options_.largest + 1);
    while (too_large - largest_ > 1) {
      const int64_t middle = (largest_ + too_large) / 2;
      (Fits(middle) ? largest_ : too_large) = middle;
    }
    options_.note(absl::StrFormat("the largest micro-batch is %d", largest_));
  }

  void Time(int64_t batch, MeasuredDevice& measured) {
    // Of two steps the difference is micro-steps alone.
    const double seconds = MiddleOf([&] {
      const double one = Step(batch, 1);
      return (Step(batch, kMicroSteps) - one) / (kMicroSteps - 1);
    });
    measured.points.push_back({batch, std::max(seconds, 1e-9)});
    options_.note(absl::StrFormat("%d samples: %.4f s, %.1f a second", batch, seconds,
                                  static_cast<double>(batch) / seconds));
  }

  /// Of an element: the gradient's norm, and AdamW.
  double TimeOptimizer() {
    const double seconds = MiddleOf([&] {
      parameters_.device().Synchronize();
      const auto start = Clock::now();
      parameters_.SumOfSquares();
      parameters_.OptimizerStep(0, 1, 0);
      parameters_.device().Synchronize();
      return std::chrono::duration<double>(Clock::now() - start).count();
    });
    return seconds / static_cast<double>(std::max<int64_t>(parameters_.own().size(), 1));
  }

  /// The middle one of a few measurements: one may be disturbed.
  template <typename F>
  static double MiddleOf(const F& measure) {
    std::vector<double> times;
    times.reserve(kTimes);
    for (int i = 0; i < kTimes; ++i) times.push_back(measure());
    std::nth_element(times.begin(), times.begin() + kTimes / 2, times.end());
    return times[kTimes / 2];
  }

  /// The line from one sample to most of them, raised so that all that was needed lies below it.
  void FitMemory(Compute& compute) const {
    const auto by_batch = [](const Needed& a, const Needed& b) { return a.batch < b.batch; };
    const Needed most = *std::max_element(needed_.begin(), needed_.end(), by_batch);
    const Needed one = needed_.front();
    compute.bytes_per_sample =
        most.batch == 1 ? one.bytes : (most.bytes - one.bytes) / (most.batch - one.batch);
    for (const Needed& n : needed_) {
      compute.fixed_bytes =
          std::max(compute.fixed_bytes, n.bytes - compute.bytes_per_sample * n.batch);
    }
  }

  struct Needed {
    int64_t batch, bytes;
  };

  LanguageModel& model_;
  Zero& parameters_;
  const ProfileOptions& options_;
  Clock::time_point start_ = Clock::now();
  int64_t steps_ = 0;
  int64_t bytes_ = 0;
  double step_seconds_ = 0;  ///< of the last one that fitted
  int64_t largest_ = 0;
  std::vector<Needed> needed_;
};

}  // namespace

MeasuredDevice ProfileDevice(LanguageModel& model, Zero& parameters,
                             const ProfileOptions& options) {
  Require(options.length > 0 && options.largest > 0, "a micro-batch of up to ", options.largest,
          " samples of ", options.length, " tokens");
  return Profiler(model, parameters, options).Run();
}

}  // namespace pando
