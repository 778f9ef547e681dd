#include "dist/zero/zero.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dist/launch/progress_page.h"
#include "engine/error.h"

namespace pando {
namespace {

// Initial values go to the device in pieces of so many elements.
constexpr int64_t kPiece = int64_t{1} << 20;

ZeroOptions Checked(const ZeroOptions& o, int ranks) {
  Require(o.stage >= 0 && o.stage <= 3, "ZeRO stage ", o.stage, ": there are 0 to 3");
  Require(o.shares.empty() || static_cast<int>(o.shares.size()) == ranks, o.shares.size(),
          " shares for ", ranks, " ranks");
  Require(o.dtype == DType::kF32 || o.dtype == DType::kBF16 || o.dtype == DType::kF16,
          "training computes in f32, bf16 or f16, not in ", Name(o.dtype));
  return o;
}

/// Names those whose fingerprint is not the majority's; nobody if all are the same.
std::string OddOnesOut(const std::vector<int64_t>& prints) {
  for (const int64_t candidate : prints) {
    std::vector<size_t> others;
    for (size_t r = 0; r < prints.size(); ++r) {
      if (prints[r] != candidate) others.push_back(r);
    }
    if (others.empty()) return "";
    if (2 * others.size() < prints.size()) {
      return absl::StrCat(others.size() == 1 ? "rank " : "ranks ", absl::StrJoin(others, ", "),
                          others.size() == 1 ? " has" : " have");
    }
  }
  return "one of them has";
}

}  // namespace

Zero::Zero(const ParameterRegistry& registry, const std::vector<Unit*>& units,
           const ZeroOptions& options, Communicator* communicator, Device& device)
    : schedule_(registry, units),
      observed_(!units.empty()),
      options_(Checked(options, communicator == nullptr ? 1 : communicator->size())),
      communicator_(communicator),
      device_(device),
      rank_(communicator == nullptr ? 0 : communicator->rank()),
      shards_(
          options.shares.empty()
              ? ShardMap::Even(layout().size(), communicator == nullptr ? 1 : communicator->size())
              : ShardMap::FromShares(layout().size(), options.shares)),
      own_(options.stage == 0 ? FlatInterval{0, layout().size()} : shards_.Of(rank_)),
      buffers_(static_cast<size_t>(schedule_.units())) {
  Require(communicator == nullptr || &communicator->device() == &device,
          "the communicator is of another device than the parameters: it would not wait for their "
          "work");
  CheckAgreement();
  Allocate();
}

Zero::~Zero() = default;

void Zero::Allocate() {
  const int64_t whole = layout().size();
  values_ =
      Tensor::Zeros({WholeValues() ? whole : own_.size()}, options_.dtype, device_, "parameters");
  grads_ = Tensor::Zeros({WholeGrads() ? whole : own_.size()}, DType::kF32, device_, "gradients");
  own_values_ = WholeValues() ? values_.Narrow(own_.begin, own_.size()) : values_;
  own_grads_ = WholeGrads() ? grads_.Narrow(own_.begin, own_.size()) : grads_;
  masters_ = options_.dtype == DType::kF32
                 ? own_values_
                 : Tensor::Zeros({own_.size()}, DType::kF32, device_, "f32 master parameters");
  optimizer_.emplace(own_, options_.adamw, device_);
  for (int u = 0; u < schedule_.units(); ++u) AllocateUnit(u);
}

void Zero::AllocateUnit(int u) {
  const UnitSchedule::Entry& unit = schedule_.unit(u);
  UnitBuffers& b = buffers_[static_cast<size_t>(u)];
  const FlatInterval mine = Intersection(own_, unit.interval);
  b.counts = shards_.Counts(unit.interval);
  b.own_begin = mine.begin - unit.interval.begin;
  b.own_count = mine.size();
  const auto place = [&](bool is_whole, const Tensor& flat, const char* what) {
    if (is_whole) return flat.Narrow(unit.interval.begin, unit.interval.size());
    Tensor t = Tensor::Empty({unit.interval.size()}, flat.dtype(), device_,
                             absl::StrCat(what, " of ", unit.name));
    t.storage()->Release();
    return t;
  };
  b.values = place(WholeValues(), values_, "parameters");
  b.grads = place(WholeGrads(), grads_, "gradients");
  for (Parameter* p : unit.owned) {
    const auto& entries = layout().entries();
    const auto entry = std::find_if(entries.begin(), entries.end(),
                                    [p](const FlatLayout::Entry& e) { return e.parameter == p; });
    const int64_t at = entry->offset - unit.interval.begin;
    p->Place(Tensor::View(b.values.storage(), b.values.offset() + at, p->padded_shape(),
                          options_.dtype));
    p->PlaceGrad(
        Tensor::View(b.grads.storage(), b.grads.offset() + at, p->padded_shape(), DType::kF32));
  }
}

/// Ranks that would not call the same collectives would wait for each other forever.
void Zero::CheckAgreement() {
  if (Alone()) return;
  const AdamWOptions& adamw = options_.adamw;
  const std::string text =
      absl::StrCat(schedule_.Description(), "stage ", options_.stage, " ", Name(options_.dtype),
                   options_.overlap ? " overlapped " : " ", absl::StrJoin(shards_.cuts(), " "),
                   " adamw ", adamw.beta1, " ", adamw.beta2, " ", adamw.eps, " ",
                   adamw.weight_decay, " ", static_cast<int>(adamw.rounding));
  const std::vector<int64_t> prints =
      Gather(static_cast<int64_t>(XXH3_64bits(text.data(), text.size())));
  for (size_t r = 1; r < prints.size(); ++r) {
    Require(prints[r] == prints[0], "rank ", r,
            " has another model, stage, precision, optimizer or shards than rank 0: give all ranks "
            "the same");
  }
}

void Zero::CheckReplicas() {
  if (Alone() || options_.stage == 3) return;
  FinishGathers();
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       &XXH3_freeState);
  XXH3_64bits_reset(state.get());
  for (int64_t begin = 0; begin < values_.numel(); begin += kPiece) {
    const Tensor piece = values_.Narrow(begin, std::min(kPiece, values_.numel() - begin));
    std::vector<char> bytes(static_cast<size_t>(piece.bytes()));
    device_.current_stream().Copy(bytes.data(), piece.data(), piece.bytes(),
                                  CopyKind::kDeviceToHost);
    device_.current_stream().Synchronize();
    XXH3_64bits_update(state.get(), bytes.data(), bytes.size());
  }
  const std::vector<int64_t> prints = Gather(static_cast<int64_t>(XXH3_64bits_digest(state.get())));
  const std::string who = OddOnesOut(prints);
  if (who.empty()) return;
  throw Error(
      absl::StrCat("ranks hold different parameters where they should be the same bits: ", who,
                   " computed or transferred something wrong; go on from the last checkpoint"));
}

/// One number of every rank.
std::vector<int64_t> Zero::Gather(int64_t mine) {
  std::vector<int64_t> all(static_cast<size_t>(ranks()));
  all[static_cast<size_t>(rank_)] = mine;
  Tensor there = Tensor::FromHost(all, {ranks()}, device_, "numbers");
  communicator_->AllGatherV(TypedSpan(there), std::vector<int64_t>(all.size(), 1))->Wait();
  return there.ToHost<int64_t>();
}

void Zero::Initialize(uint64_t seed) {
  const FlatInterval held = WholeValues() ? FlatInterval{0, layout().size()} : own_;
  for (const FlatLayout::Entry& e : layout().entries()) {
    const Parameter& p = *e.parameter;
    // Padding rows, behind the parameter's own elements, stay 0.
    const FlatInterval part = Intersection(held, {e.offset, e.offset + p.shape().numel()});
    for (int64_t begin = part.begin; begin < part.end; begin += kPiece) {
      WriteInitial(p, {begin, std::min(part.end, begin + kPiece)}, e.offset, seed);
    }
  }
  MarkChanged();
}

/// Writes the flat elements `part` of the parameter that starts at `offset`.
void Zero::WriteInitial(const Parameter& p, FlatInterval part, int64_t offset, uint64_t seed) {
  std::vector<float> host(static_cast<size_t>(part.size()));
  p.initializer().Fill(seed, p.name(), part.begin - offset, host);
  const Tensor fresh = Tensor::FromHost(host, {part.size()}, device_, p.name());
  const int64_t held_from = WholeValues() ? 0 : own_.begin;
  values_.Narrow(part.begin - held_from, part.size()).CastFrom(fresh);
  const FlatInterval mine = Intersection(own_, part);
  if (options_.dtype == DType::kF32 || mine.size() == 0) return;
  masters_.Narrow(mine.begin - own_.begin, mine.size())
      .CastFrom(fresh.Narrow(mine.begin - part.begin, mine.size()));
}

void Zero::MarkChanged() {
  for (const FlatLayout::Entry& e : layout().entries()) e.parameter->BumpVersion();
}

void Zero::BeginStep() {
  for (const FlatLayout::Entry& e : layout().entries()) e.parameter->ClearGrad();
  for (UnitBuffers& b : buffers_) b.reduced = false;
}

void Zero::FinishGradients() {
  while (!reducing_.empty()) FinishReduce(reducing_.front());
  if (Alone()) {
    for (int u = 0; u < schedule_.units(); ++u) CompleteGrads(u);
  }
}

double Zero::SumOfSquares() {
  double sum = pando::SumOfSquares(own_grads_).Item();
  if (options_.stage > 0) AllReduce({&sum, 1});
  return sum;
}

void Zero::OptimizerStep(double learning_rate, double grad_scale, uint64_t seed) {
  ReportPhase(Phase::kOptimizer);
  optimizer_->Step(layout(), masters_, own_grads_, own_values_, learning_rate, grad_scale, seed);
  MarkChanged();
  if (Alone() || options_.stage == 0 || options_.stage == 3) return;
  for (int u = 0; u < schedule_.units(); ++u) StartGather(u);
  if (!options_.overlap) FinishGathers();
}

void Zero::ValuesFromMasters() {
  FinishGathers();
  if (options_.dtype != DType::kF32) own_values_.CastFrom(masters_);
  if (!Alone() && (options_.stage == 1 || options_.stage == 2)) {
    for (int u = 0; u < schedule_.units(); ++u) StartGather(u);
    FinishGathers();
  }
  MarkChanged();
}

Tensor& Zero::masters() {
  FinishGathers();  // which, in f32, send what may be written here
  return masters_;
}

void Zero::WriteMasters(int64_t begin, std::span<const float> values) {
  const FlatInterval part =
      Intersection(own_, {begin, begin + static_cast<int64_t>(values.size())});
  if (part.size() == 0) return;
  const auto mine =
      values.subspan(static_cast<size_t>(part.begin - begin), static_cast<size_t>(part.size()));
  masters()
      .Narrow(part.begin - own_.begin, part.size())
      .CopyFrom(Tensor::FromHost(mine, {part.size()}, device_, "values"));
}

void Zero::AllReduce(std::span<double> values, ReduceOp op) {
  if (Alone()) return;
  const Shape shape{static_cast<int64_t>(values.size())};
  Tensor there = Tensor::FromHost(std::span<const double>(values), shape, device_, "numbers");
  communicator_->AllReduce(TypedSpan(there), op)->Wait();
  there.ToHost(values);
}

}  // namespace pando
