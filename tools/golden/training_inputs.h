#pragma once

#include <string>

#include "tools/pando/train_options.h"

namespace pando {

/// Writes what `pando train` with these options sees: to `windows`, where in the training split
/// each sample of each step starts, int64 little-endian [steps * global batch] in the order of use;
/// to `init`, the initial weights as safetensors, f32, by Hugging Face's names without prefix. Both
/// come from the Trainer that such a run makes. Throws InvalidArgument, also if a file can't
/// be written.
void WriteTrainingInputs(TrainOptions options, const std::string& windows, const std::string& init);

}  // namespace pando
