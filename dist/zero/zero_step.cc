// What happens within a micro-step: units come and go.

#include <algorithm>
#include <exception>
#include <string>

#include "absl/strings/str_cat.h"
#include "dist/launch/progress_page.h"
#include "dist/zero/zero.h"
#include "engine/error.h"

namespace pando {
namespace {

// Reductions in flight: one on its way while another unit's gradients come together.
constexpr size_t kReducing = 2;

class ObserverGuard {
 public:
  explicit ObserverGuard(TapeObserver* observer) { Tape::Current().set_observer(observer); }
  ~ObserverGuard() { Tape::Current().set_observer(nullptr); }
  ObserverGuard(const ObserverGuard&) = delete;
  ObserverGuard& operator=(const ObserverGuard&) = delete;
};

}  // namespace

void Zero::MicroStep(const std::function<void()>& forward_backward, bool last) {
  Run(forward_backward, schedule_.steps(), last);
}

void Zero::EmptyMicroStep(bool last) { Run(nullptr, schedule_.steps(), last); }

void Zero::Forward(const std::function<void()>& forward) {
  const NoGrad no_grad;
  Run(forward, schedule_.units(), false);
}

/// Walks the schedule up to step `end`, with `body` if there is one.
void Zero::Run(const std::function<void()>& body, int end, bool last) {
  if (Alone()) {
    if (body) body();
    return;
  }
  position_ = 0;
  end_ = end;
  last_ = last;
  if (!WholeGrads() && end == schedule_.steps()) {
    for (const FlatLayout::Entry& e : layout().entries()) e.parameter->ClearGrad();
  }
  try {
    if (body == nullptr) {
      for (; position_ < end_; ++position_) {
        Enter(position_);
        Leave(position_);
      }
    } else if (observed_) {
      const ObserverGuard observing(this);
      body();
    } else {
      for (int step = 0; step < end_; ++step) Enter(step);
      body();
      for (; position_ < end_; ++position_) Leave(position_);
    }
    Require(position_ == end_, "the model ran ", position_, " of ", end_,
            " steps through its units: each must run once in every forward, in the order of "
            "units()");
  } catch (const std::exception& e) {
    communicator_->Abort(absl::StrCat("rank ", rank_, ": ", e.what()));
    throw;
  }
}

void Zero::EnterUnit(const Unit& unit, bool backward) {
  CheckPosition(unit, backward);
  Enter(position_);
}

void Zero::LeaveUnit(const Unit& unit, bool backward) {
  CheckPosition(unit, backward);
  Leave(position_++);
}

void Zero::CheckPosition(const Unit& unit, bool backward) const {
  const auto where = [](bool is_backward, const std::string& name) {
    return absl::StrCat(is_backward ? "backward" : "forward", " of ", name);
  };
  if (position_ < end_ && schedule_.IsBackward(position_) == backward &&
      schedule_.unit(schedule_.UnitAt(position_)).name == unit.name) {
    return;
  }
  throw Error(absl::StrCat(
      "the model ran the ", where(backward, unit.name), " where ",
      position_ < end_
          ? absl::StrCat("the ", where(schedule_.IsBackward(position_),
                                       schedule_.unit(schedule_.UnitAt(position_)).name))
          : std::string("the end"),
      " was to come: units must run once in every forward, in the order of units()"));
}

/// Before a step of the schedule: its parameters are there, the next step's are on their way.
void Zero::Enter(int step) {
  for (const int u : schedule_.NeedsAt(step)) {
    if (!WholeValues()) StartGather(u);
    FinishGather(u);
    if (schedule_.IsBackward(step)) OpenGrads(u);
  }
  if (WholeValues() || !options_.overlap || step + 1 >= end_) return;
  for (const int u : schedule_.NeedsAt(step + 1)) StartGather(u);
}

/// Behind it: what the next step doesn't need goes.
void Zero::Leave(int step) {
  for (const int u : schedule_.NeedsAt(step)) {
    if (schedule_.CompletesGradients(u, step)) StartReduce(u);
    const bool stays = step + 1 < end_ && schedule_.IsNeededAt(u, step + 1);
    if (!WholeValues() && !stays) buffers_[static_cast<size_t>(u)].values.storage()->Release();
  }
}

/// Starts to make the unit's values whole, if they aren't and nobody has yet: at stage 3 wherever
/// it is called, else behind an optimizer step only.
void Zero::StartGather(int u) {
  UnitBuffers& b = buffers_[static_cast<size_t>(u)];
  if (!WholeValues()) {
    if (!b.values.storage()->released()) return;
    b.values.storage()->Restore();
    if (b.own_count > 0) {
      const int64_t at = schedule_.unit(u).interval.begin + b.own_begin - own_.begin;
      b.OwnValues().CopyFrom(own_values_.Narrow(at, b.own_count));
    }
  }
  b.gather = communicator_->AllGatherV(TypedSpan(b.values), b.counts);
}

void Zero::FinishGather(int u) {
  UnitBuffers& b = buffers_[static_cast<size_t>(u)];
  if (b.gather == nullptr) return;
  const PhaseWithin gathering(Phase::kGather);
  b.gather->Wait();
  b.gather = nullptr;
}

void Zero::FinishGathers() {
  for (int u = 0; u < schedule_.units(); ++u) FinishGather(u);
}

/// From stage 2 on: a place for the whole unit's gradients of this micro-step.
void Zero::OpenGrads(int u) {
  UnitBuffers& b = buffers_[static_cast<size_t>(u)];
  if (WholeGrads() || b.grads_open) return;
  FinishReduce(u);
  b.grads.storage()->Restore();
  b.grads_open = true;
  for (const FlatInterval& gap : schedule_.unit(u).gaps) {
    b.grads.Narrow(gap.begin - schedule_.unit(u).interval.begin, gap.size()).SetZero();
  }
}

/// Gradients that nothing was added to are 0.
void Zero::CompleteGrads(int u) {
  for (Parameter* p : schedule_.unit(u).owned) {
    if (p->StartGrad()) continue;
    Tensor grad = p->grad();
    grad.SetZero();
  }
}

/// All of the unit's gradients of this micro-step are there.
void Zero::StartReduce(int u) {
  if (WholeGrads() && !last_) return;
  CompleteGrads(u);
  UnitBuffers& b = buffers_[static_cast<size_t>(u)];
  b.grads_open = false;
  if (reducing_.size() >= kReducing) FinishReduce(reducing_.front());
  b.reduce = options_.stage == 0 ? communicator_->AllReduce(TypedSpan(b.grads))
                                 : communicator_->ReduceScatterV(TypedSpan(b.grads), b.counts);
  reducing_.push_back(u);
  if (!options_.overlap) FinishReduce(u);
}

void Zero::FinishReduce(int u) {
  UnitBuffers& b = buffers_[static_cast<size_t>(u)];
  if (b.reduce == nullptr) return;
  {
    const PhaseWithin reducing(Phase::kReduceScatter);
    b.reduce->Wait();
  }
  b.reduce = nullptr;
  reducing_.erase(std::find(reducing_.begin(), reducing_.end(), u));
  if (WholeGrads()) return;
  if (b.own_count > 0) {
    const int64_t at = schedule_.unit(u).interval.begin + b.own_begin - own_.begin;
    Tensor sum = own_grads_.Narrow(at, b.own_count);
    if (b.reduced) {
      sum.AddFrom(b.OwnGrads());
    } else {
      sum.CopyFrom(b.OwnGrads());
    }
  }
  b.reduced = true;
  b.grads.storage()->Release();
}

}  // namespace pando
