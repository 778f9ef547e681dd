#pragma once

// What of a training run goes into a checkpoint on disk, and back.

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckpt/checkpoint_reader.h"
#include "ckpt/checkpoint_writer.h"
#include "ckpt/run_folder.h"
#include "dist/zero/zero.h"
#include "engine/flat_parameters.h"
#include "engine/module.h"

namespace pando {

/// Texts that travel with the weights: file name -> content (config.json, tokenizer.json).
using CheckpointTexts = std::map<std::string, std::string>;

// All ranks call these together, rank 0 alone with a folder or files, which the others need not
// see; they get null. All return the same status.

/// Saves weights (f32, by name), f32 masters and both moments (by flat interval) as the checkpoint
/// of `next_step` finished steps, and returns its path (on rank 0). A full disk or another failure
/// leaves what was there as it was.
absl::StatusOr<std::string> SaveModelCheckpoint(const RunFolder* run, int64_t next_step,
                                                Zero& parameters, const CheckpointTexts& texts,
                                                const std::map<std::string, std::string>& metadata);

/// Fills parameters and optimizer, verifying every byte, and returns the step to go on from.
/// InvalidArgument if the checkpoint is of another model.
absl::StatusOr<int64_t> LoadModelCheckpoint(CheckpointReader* reader, Zero& parameters);

/// Fills the parameters from `weights`, by Hugging Face's names, with or without the prefix
/// "transformer."; masks are passed over. InvalidArgument, naming it, for a missing tensor or one
/// of another shape, and for tensors that the model has no place for.
absl::Status LoadWeights(TensorFileSet* weights, Zero& parameters);
/// The same for a model that isn't trained.
absl::Status LoadWeights(TensorFileSet& weights, FlatParameters& parameters);

/// Bytes of a checkpoint of this model, about: for the check of free space.
int64_t CheckpointBytes(const ParameterRegistry& registry);

}  // namespace pando
