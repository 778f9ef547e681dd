#pragma once

// The order in which a micro-step uses a model's units, known before it runs: what is gathered and
// reduced when, the same on every rank.

#include <cstdint>
#include <string>
#include <vector>

#include "engine/flat_parameters.h"
#include "engine/module.h"
#include "engine/tape.h"

namespace pando {

/// The units of a model in the flat space, and the steps of a micro-step: forward through the units
/// in order, steps 0 to units() - 1, and backward through them in reverse, up to steps() - 1.
class UnitSchedule {
 public:
  struct Entry {
    std::string name;
    /// Parameters that belong to this unit: of those it uses, the ones that no earlier unit does.
    std::vector<Parameter*> owned;
    /// Where they lie, up to the start of the next unit.
    FlatInterval interval;
    /// The parts of it in which no parameter lies.
    std::vector<FlatInterval> gaps;
    /// The units that own what it uses: itself, and those it shares parameters of.
    std::vector<int> needs;
  };

  /// `units` in the order of forward; none: the model is one unit. Throws InvalidArgument if they
  /// don't hold all parameters of the registry.
  UnitSchedule(const ParameterRegistry& registry, const std::vector<Unit*>& units);

  /// Parameters in the order of the units that own them: so a unit is one interval.
  const FlatLayout& layout() const { return layout_; }
  int units() const { return static_cast<int>(entries_.size()); }
  const Entry& unit(int u) const { return entries_[static_cast<size_t>(u)]; }

  int steps() const { return 2 * units(); }
  bool IsBackward(int step) const { return step >= units(); }
  /// The unit that step `step` runs.
  int UnitAt(int step) const { return IsBackward(step) ? steps() - 1 - step : step; }
  const std::vector<int>& NeedsAt(int step) const { return unit(UnitAt(step)).needs; }
  bool IsNeededAt(int u, int step) const;
  /// Whether `step` is the last that adds to the gradients of unit u.
  bool CompletesGradients(int u, int step) const;
  /// How often unit u is gathered in a micro-step at stage 3, and in a forward alone.
  int Gathers(int u, bool with_backward) const;

  /// Equal for models with the same parameters in the same units.
  std::string Description() const;

 private:
  static std::vector<Parameter*> Order(const ParameterRegistry& registry,
                                       const std::vector<Unit*>& units,
                                       std::vector<Entry>* entries);

  std::vector<Entry> entries_;
  FlatLayout layout_;
};

}  // namespace pando
