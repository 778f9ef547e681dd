#include "engine/flat_parameters.h"

#include <algorithm>
#include <utility>

#include "engine/error.h"

namespace pando {
namespace {

int64_t RoundUp(int64_t n) { return (n + kFlatAlignment - 1) / kFlatAlignment * kFlatAlignment; }

}  // namespace

FlatLayout::FlatLayout(const std::vector<Parameter*>& parameters) {
  for (Parameter* p : parameters) {
    entries_.push_back({p, size_});
    size_ = RoundUp(entries_.back().end());
  }
}

std::vector<FlatLayout::Run> FlatLayout::Runs(FlatInterval interval) const {
  std::vector<Run> runs;
  for (const Entry& e : entries_) {
    const FlatInterval part{std::max(e.offset, interval.begin), std::min(e.end(), interval.end)};
    if (part.size() <= 0 || !e.parameter->requires_grad()) continue;
    const bool decays = e.parameter->decays();
    if (!runs.empty() && runs.back().decays == decays &&
        part.begin == RoundUp(runs.back().interval.end)) {
      runs.back().interval.end = part.end;
    } else {
      runs.push_back({part, decays});
    }
  }
  return runs;
}

FlatParameters::FlatParameters(const ParameterRegistry& registry, DType dtype, Device& device,
                               bool training)
    : layout_(registry.parameters()), dtype_(dtype) {
  Require(IsFloating(dtype), "parameters can't be ", Name(dtype));
  const Shape shape{layout_.size()};
  values_ = Tensor::Zeros(shape, dtype, device, "parameters");
  if (training) {
    grads_ =
        Tensor::Zeros(shape, dtype == DType::kF64 ? DType::kF64 : DType::kF32, device, "gradients");
  }
  if (dtype == DType::kF32) {
    masters_ = values_;
  } else if (training && dtype != DType::kF64) {
    masters_ = Tensor::Zeros(shape, DType::kF32, device, "f32 master parameters");
  }
  for (const FlatLayout::Entry& e : layout_.entries()) {
    Parameter& p = *e.parameter;
    p.Place(Tensor::View(values_.storage(), e.offset, p.padded_shape(), dtype));
    if (training) {
      p.PlaceGrad(Tensor::View(grads_.storage(), e.offset, p.padded_shape(), grads_.dtype()));
    }
  }
}

void FlatParameters::Initialize(uint64_t seed) {
  // One parameter at a time through the host: the values are the same on every device.
  for (const FlatLayout::Entry& e : layout_.entries()) {
    const Parameter& p = *e.parameter;
    std::vector<float> host(static_cast<size_t>(p.shape().numel()));
    p.initializer().Fill(seed, p.name(), 0, host);
    WriteParameter(p, host);
  }
  ValuesFromMasters();
}

void FlatParameters::ClearGrads() {
  for (const FlatLayout::Entry& e : layout_.entries()) e.parameter->ClearGrad();
}

void FlatParameters::CompleteGrads() {
  for (const FlatLayout::Entry& e : layout_.entries()) {
    if (e.parameter->StartGrad()) continue;
    Tensor grad = e.parameter->grad();
    grad.SetZero();
  }
}

void FlatParameters::ValuesFromMasters() {
  if (masters_.defined() && masters_.storage() != values_.storage()) values_.CastFrom(masters_);
  MarkChanged();
}

void FlatParameters::MarkChanged() {
  for (const FlatLayout::Entry& e : layout_.entries()) e.parameter->BumpVersion();
}

const FlatLayout::Entry& FlatParameters::EntryOf(const Parameter& p) const {
  const auto& entries = layout_.entries();
  const auto it = std::find_if(entries.begin(), entries.end(),
                               [&p](const FlatLayout::Entry& e) { return e.parameter == &p; });
  Require(it != entries.end(), "parameter ", p.name(), " belongs to another model");
  return *it;
}

std::vector<float> FlatParameters::ReadParameter(const Parameter& p) {
  const Tensor& from = masters_.defined() ? masters_ : values_;
  const Tensor place = Tensor::View(from.storage(), EntryOf(p).offset, p.shape(), from.dtype());
  Tensor f32 = Tensor::Empty(p.shape(), DType::kF32, device(), p.name());
  f32.CastFrom(place);
  return f32.ToHost<float>();
}

void FlatParameters::WriteParameter(const Parameter& p, std::span<const float> values) {
  Require(static_cast<int64_t>(values.size()) == p.shape().numel(), values.size(),
          " values for parameter ", p.name(), " ", p.shape().ToString());
  const Tensor from = Tensor::FromHost(values, p.shape(), device(), p.name());
  // Without masters (f64, or no training) the values themselves are written.
  Tensor& into = masters_.defined() ? masters_ : values_;
  Tensor place = Tensor::View(into.storage(), EntryOf(p).offset, p.shape(), into.dtype());
  place.CastFrom(from);
}

}  // namespace pando
