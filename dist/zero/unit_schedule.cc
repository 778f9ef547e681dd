#include "dist/zero/unit_schedule.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "engine/error.h"

namespace pando {

std::vector<Parameter*> UnitSchedule::Order(const ParameterRegistry& registry,
                                            const std::vector<Unit*>& units,
                                            std::vector<Entry>* entries) {
  if (units.empty()) {
    entries->push_back({"model", registry.parameters(), {}, {}, {0}});
    return registry.parameters();
  }
  std::vector<Parameter*> order;
  std::map<Parameter*, int> owner;
  for (const Unit* unit : units) {
    const int u = static_cast<int>(entries->size());
    Entry entry{unit->name, {}, {}, {}, {u}};
    for (Parameter* p : unit->parameters) {
      const auto [it, mine] = owner.emplace(p, u);
      if (mine) {
        entry.owned.push_back(p);
        order.push_back(p);
      } else if (std::find(entry.needs.begin(), entry.needs.end(), it->second) ==
                 entry.needs.end()) {
        entry.needs.push_back(it->second);
      }
    }
    entries->push_back(std::move(entry));
  }
  for (Parameter* p : registry.parameters()) {
    Require(owner.count(p) > 0, "parameter ", p->name(), " is in no unit of the model");
  }
  return order;
}

UnitSchedule::UnitSchedule(const ParameterRegistry& registry, const std::vector<Unit*>& units)
    : layout_(Order(registry, units, &entries_)) {
  auto next = layout_.entries().begin();
  int64_t at = 0;
  for (Entry& entry : entries_) {
    entry.interval.begin = at;
    for (size_t i = 0; i < entry.owned.size(); ++i, ++next) {
      const auto behind = std::next(next);
      const int64_t end = behind == layout_.entries().end() ? layout_.size() : behind->offset;
      if (next->end() < end) entry.gaps.push_back({next->end(), end});
      at = end;
    }
    entry.interval.end = at;
  }
}

bool UnitSchedule::IsNeededAt(int u, int step) const {
  if (step < 0 || step >= steps()) return false;
  const std::vector<int>& needs = NeedsAt(step);
  return std::find(needs.begin(), needs.end(), u) != needs.end();
}

bool UnitSchedule::CompletesGradients(int u, int step) const {
  if (!IsBackward(step) || !IsNeededAt(u, step)) return false;
  for (int later = step + 1; later < steps(); ++later) {
    if (IsNeededAt(u, later)) return false;
  }
  return true;
}

int UnitSchedule::Gathers(int u, bool with_backward) const {
  int gathers = 0;
  for (int step = 0; step < (with_backward ? steps() : units()); ++step) {
    if (IsNeededAt(u, step) && !IsNeededAt(u, step - 1)) ++gathers;
  }
  return gathers;
}

std::string UnitSchedule::Description() const {
  std::string text;
  for (const Entry& entry : entries_) {
    absl::StrAppend(&text, "unit ", entry.name, " ", entry.interval.end, ":");
    for (const int u : entry.needs) absl::StrAppend(&text, " ", u);
    for (const Parameter* p : entry.owned) {
      absl::StrAppend(&text, "\n", p->name(), " ", p->padded_shape().ToString(),
                      p->requires_grad() ? "" : " frozen", p->decays() ? " decays" : "");
    }
    text += "\n";
  }
  return text;
}

}  // namespace pando
