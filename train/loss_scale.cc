#include "train/loss_scale.h"

#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/error.h"

namespace pando {
namespace {

constexpr char kValueKey[] = "loss-scale";
constexpr char kGoodStepsKey[] = "loss-scale-good-steps";
// So that it stays a number where gradients vanish.
constexpr double kLargest = 0x1p40;

bool IsPowerOfTwo(double value) {
  int exponent = 0;
  return std::isfinite(value) && value >= 1 && std::frexp(value, &exponent) == 0.5;
}

}  // namespace

LossScale::LossScale(const LossScaleOptions& options)
    : growth_interval_(options.growth_interval), value_(options.initial) {
  Require(IsPowerOfTwo(options.initial), "loss scale ", options.initial,
          ": must be a power of two, at least 1");
  Require(growth_interval_ > 0, "loss scale: a growth interval of ", growth_interval_, " steps");
}

void LossScale::OnGoodStep() {
  if (++good_steps_ < growth_interval_) return;
  good_steps_ = 0;
  if (value_ < kLargest) value_ *= 2;
}

bool LossScale::OnOverflow() {
  if (value_ <= 1) return false;
  value_ /= 2;
  good_steps_ = 0;
  return true;
}

void LossScale::WriteTo(std::map<std::string, std::string>& metadata) const {
  metadata[kValueKey] = absl::StrFormat("%.17g", value_);
  metadata[kGoodStepsKey] = absl::StrCat(good_steps_);
}

absl::Status LossScale::ReadFrom(const std::map<std::string, std::string>& metadata) {
  const auto value = metadata.find(kValueKey);
  const auto good_steps = metadata.find(kGoodStepsKey);
  if (value == metadata.end() && good_steps == metadata.end()) return absl::OkStatus();
  double read_value = 0;
  int64_t read_good_steps = -1;
  if (value == metadata.end() || good_steps == metadata.end() ||
      !absl::SimpleAtod(value->second, &read_value) ||
      !absl::SimpleAtoi(good_steps->second, &read_good_steps) || !IsPowerOfTwo(read_value) ||
      read_good_steps < 0) {
    return absl::DataLossError(absl::StrCat("the checkpoint's ", kValueKey, " and ", kGoodStepsKey,
                                            " are no loss scale and no number of steps"));
  }
  value_ = read_value;
  good_steps_ = read_good_steps;
  return absl::OkStatus();
}

}  // namespace pando
