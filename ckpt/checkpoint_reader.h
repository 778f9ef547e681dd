#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ckpt/manifest.h"
#include "ckpt/safetensors.h"
#include "ckpt/state_pieces.h"
#include "ckpt/tensor_file_set.h"

namespace pando {

/// Reads one checkpoint. Whatever it returns has been verified against its checksum; of the files
/// only the chunks that are needed are read. Errors are DataLoss or another Status naming the file:
/// such a checkpoint is not to be used. Not thread-safe.
class CheckpointReader {
 public:
  /// Reads the manifest and the headers of all files.
  static absl::StatusOr<CheckpointReader> Open(const std::string& path);

  const std::string& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }

  /// A file of FileKind::kText.
  absl::StatusOr<std::string> ReadText(absl::string_view name) const;

  /// The weights, by parameter name.
  TensorFileSet& weights() { return weights_; }

  /// "exp_avg", "exp_avg_sq", "master", ...
  std::vector<std::string> States() const { return state_index_.States(); }

  /// Elements `begin` to begin + out.size() - 1 of a state, in the flat space of the manifest,
  /// whatever intervals the files hold. NotFound, OutOfRange.
  absl::Status ReadState(const std::string& state, int64_t begin, absl::Span<float> out);

  /// The same for elements of one parameter, row-major from `first` on, so that a program with
  /// another layout can read it. NotFound, OutOfRange.
  absl::Status ReadParameterState(const std::string& state, absl::string_view parameter,
                                  int64_t first, absl::Span<float> out);

  /// All files of tensors, for listing.
  std::vector<const SafetensorsReader*> TensorFiles() const;

 private:
  CheckpointReader(std::string path, Manifest manifest)
      : path_(std::move(path)), manifest_(std::move(manifest)) {}

  absl::StatusOr<SafetensorsReader> OpenTensors(const CheckpointFile& file) const;
  absl::Status OpenFiles();

  std::string path_;
  Manifest manifest_;
  TensorFileSet weights_;
  std::vector<SafetensorsReader> state_files_;
  StateIndex state_index_;  // into state_files_
};

/// The quick check: the manifest is whole and of the step that the folder's name says, and all
/// files are there and have their sizes.
absl::StatusOr<Manifest> CheckFiles(const std::string& path);

/// The full check: as above, and every byte matches its checksum, the files of tensors are valid,
/// and the state has no hole.
absl::Status Verify(const std::string& path);

/// A checkpoint that was passed over, and why.
struct SkippedCheckpoint {
  std::string path;
  std::string reason;
};

struct FoundCheckpoint {
  std::string path;                        ///< empty: there is no valid one
  Manifest manifest;                       ///< of that
  std::vector<SkippedCheckpoint> skipped;  ///< newer ones that are not valid, newest first
};

/// The newest checkpoint in `root` that Verify accepts, of at most step `max_step` (to go back
/// further than one that turned out bad though its bytes are good). NotFound if there is no folder
/// `root`.
absl::StatusOr<FoundCheckpoint> FindLatest(const std::string& root,
                                           int64_t max_step = std::numeric_limits<int64_t>::max());

/// What a checkpoint holds, for a human.
struct CheckpointSummary {
  struct Tensor {
    std::string file;
    TensorEntry entry;
  };

  std::string path;
  Manifest manifest;  ///< empty if it could not be read
  std::vector<Tensor> tensors;
  bool is_valid = false;
  bool is_verified = false;  ///< every byte was checked
  std::string reason;        ///< why it is not valid
};

/// Describes a checkpoint, as far as it can be read; `verify` reads every byte.
CheckpointSummary Inspect(const std::string& path, bool verify);

}  // namespace pando
