#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ckpt/checksum.h"
#include "ckpt/manifest.h"
#include "ckpt/run_folder.h"
#include "ckpt/safetensors.h"
#include "ckpt/state_pieces.h"

namespace pando {

/// The usual files of a checkpoint.
inline constexpr char kWeightsFile[] = "model.safetensors";
inline constexpr char kOptimizerFile[] = "optimizer.safetensors";

/// Writes one checkpoint: files are added one after the other, then Commit makes all of them appear
/// as `step-N` at once. Whatever kills the program, and whenever, either the new checkpoint is
/// there, complete and durable, or all is as before. One thread at a time.
class CheckpointWriter {
 public:
  /// Creates the temporary folder. `run` outlives this. InvalidArgument for an impossible `info`.
  /// `chunk_bytes`: granularity of the checksums (tests make it small).
  static absl::StatusOr<CheckpointWriter> Begin(const RunFolder& run, CheckpointInfo info,
                                                int64_t chunk_bytes = kChecksumChunkBytes);

  CheckpointWriter(CheckpointWriter&& other) noexcept
      : root_(std::move(other.root_)),
        folder_(std::exchange(other.folder_, "")),
        manifest_(std::move(other.manifest_)),
        states_(std::move(other.states_)),
        chunk_bytes_(other.chunk_bytes_) {}
  CheckpointWriter& operator=(CheckpointWriter&&) = delete;

  /// Removes the temporary folder unless committed.
  ~CheckpointWriter();

  /// Adds a small text, such as config.json. Names: see IsCheckpointFileName.
  absl::Status AddText(const std::string& name, absl::string_view text);

  /// Adds weights, by parameter name.
  absl::Status AddWeights(const std::string& name, const std::vector<TensorDecl>& tensors,
                          const std::map<std::string, std::string>& metadata,
                          const TensorSource& source);

  /// Adds optimizer state: `tensors` are made by StateTensorDecl. May be called for several files.
  absl::Status AddState(const std::string& name, const std::vector<TensorDecl>& tensors,
                        const TensorSource& source);

  /// Publishes the checkpoint, durably, in place of an older one of the same step, and returns its
  /// path. FailedPrecondition unless the state's pieces cover the whole flat space.
  absl::StatusOr<std::string> Commit();

 private:
  CheckpointWriter(std::string root, CheckpointInfo info, int64_t chunk_bytes);

  absl::StatusOr<OutputFile> CreateFile(const std::string& name) const;
  absl::Status AddTensors(const std::string& name, FileKind kind,
                          const std::vector<TensorDecl>& tensors,
                          const std::map<std::string, std::string>& metadata,
                          const TensorSource& source);
  absl::Status FinishFile(const std::string& name, FileKind kind, OutputFile* file);

  std::string root_;
  std::string folder_;  // the temporary one; empty once published
  Manifest manifest_;
  StateIndex states_;
  int64_t chunk_bytes_;
};

/// Deletes old checkpoints of `run`: of those up to `step`, which was just written, the newest
/// `keep` (at least 1) stay. Only sound ones (see CheckFiles) count; unsound ones stay for a human
/// to look at, and so do later ones, which are another lineage's (see DeleteLater). What was
/// deleted or could not be is reported in `notes`.
absl::Status KeepNewest(const RunFolder& run, int64_t step, int keep,
                        std::vector<std::string>* notes);

/// Deletes the checkpoints after `step`: when a run goes on from there, they are of a history that
/// did not happen, and must not be found by the next start.
absl::Status DeleteLater(const RunFolder& run, int64_t step, std::vector<std::string>* notes);

}  // namespace pando
