#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "ckpt/checkpoint_writer.h"
#include "ckpt/run_folder.h"

namespace pando {

/// A checkpoint small enough to be written thousands of times, with content that only its step
/// decides: weights in bf16 and f32, three states in two files cut at different places, two texts.
inline constexpr int64_t kSampleFlatSize = 640;
inline constexpr int64_t kSampleChunkBytes = 1024;

CheckpointInfo SampleInfo(int64_t step);

/// Element `i` of the flat space of a state; the weights are its master state.
float SampleValue(const std::string& state, int64_t step, int64_t i);

/// Adds all files, but does not commit.
absl::Status AddSampleFiles(CheckpointWriter* writer, int64_t step);

/// Writes and commits.
absl::Status SaveSample(const RunFolder& run, int64_t step);

/// OK if the checkpoint at `path` can be read whole, and every value is that of `step`.
absl::Status CheckSample(const std::string& path, int64_t step);

}  // namespace pando
