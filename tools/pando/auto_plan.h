#pragma once

#include <functional>
#include <string>

#include "dist/communicator/communicator.h"
#include "models/gpt.h"
#include "train/trainer.h"

namespace pando {

/// `--plan auto`: measures how fast each rank's device computes the model and how large a
/// micro-batch it takes, and how fast the links are, and plans stage, batches, shares and recompute
/// of all ranks. Returns the plan as a file holds it, the same on every rank, which all call this.
/// `note` gets lines for people. Throws OutOfMemory where nothing fits, PeerLost.
std::string PlanByMeasuring(const GptConfig& gpt, const TrainerOptions& trainer, Device& device,
                            Communicator& peers,
                            const std::function<void(const std::string&)>& note);

}  // namespace pando
