#pragma once

#include <string>

#include "dist/hetero/plan_problem.h"
#include "dist/hetero/planner.h"
#include "dist/zero/plan_file.h"

namespace pando {

/// What `pando plan` found out.
struct PlanFindings {
  PlanProblem problem;
  int64_t tokens_per_sample = 0;
  HeteroPlan best;
  std::vector<HeteroPlan> by_stage;  ///< the best of each; without devices where nothing fits
  std::vector<Strategy> others;
};

/// A line per device or per kind that does the same: samples, share, memory, how busy it is.
std::string PlanTable(const PlanProblem& problem, const HeteroPlan& plan);

/// For people: a line per kind of device that does the same, with a bar of how busy it is, and what
/// else was weighed.
std::string ReportInWords(const PlanFindings& findings);
/// The same as one line of JSON.
std::string ReportAsJson(const PlanFindings& findings);
/// What `pando train --plan` takes: the devices that are used, in their order.
TrainPlan ToTrainPlan(const PlanProblem& problem, const HeteroPlan& plan);

}  // namespace pando
