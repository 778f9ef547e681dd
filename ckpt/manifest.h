#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ckpt/checksum.h"

namespace pando {

/// The file that makes a folder a checkpoint. It is written last.
inline constexpr char kManifestFile[] = "manifest.json";

/// Where a parameter lies in the flat parameter space.
struct FlatParameter {
  std::string name;
  std::vector<int64_t> shape;
  int64_t offset = 0;  ///< of its first element, in elements
};

/// What a checkpoint is of.
struct CheckpointInfo {
  int64_t data_step = 0;       ///< steps of data consumed; it names the folder
  int64_t optimizer_step = 0;  ///< updates applied: fewer than data_step where steps were skipped
  std::string lineage;         ///< history (generation) that the state belongs to
  int64_t flat_size = 0;       ///< elements of the flat parameter space, padding included
  std::vector<FlatParameter> layout;            ///< by ascending offset, not overlapping
  std::map<std::string, std::string> metadata;  ///< anything else: loss scale, options, versions
};

enum class FileKind : uint8_t {
  kWeights,  ///< safetensors, by parameter name
  kState,    ///< safetensors, by interval: see state_pieces.h
  kText,     ///< configuration, tokenizer
};

struct CheckpointFile {
  std::string name;
  FileKind kind = FileKind::kText;
  FileDigest digest;
};

struct Manifest {
  CheckpointInfo info;
  std::vector<CheckpointFile> files;

  /// nullptr if there is no such file.
  const CheckpointFile* Find(absl::string_view name) const;

  /// Sum of the sizes of the files.
  int64_t TotalBytes() const;
};

/// "weights", "state", "text".
const char* Name(FileKind kind);

/// Whether a file of a checkpoint may have this name: letters, digits, '.', '_' and '-', starting
/// with none of the latter, ending in .safetensors, .json, .txt, .toml or .model. Only files with
/// such names are ever removed.
bool IsCheckpointFileName(absl::string_view name);

/// InvalidArgument unless steps are not negative and the layout is as CheckpointInfo says.
absl::Status CheckInfo(const CheckpointInfo& info);

/// The text of the manifest file: JSON of which the last field is a checksum of all before it.
absl::StatusOr<std::string> FormatManifest(const Manifest& manifest);

/// DataLoss if the text does not end with its right checksum, InvalidArgument if it is of another
/// version or not what FormatManifest writes; messages start with `path`.
absl::StatusOr<Manifest> ParseManifest(const std::string& path, absl::string_view text);

}  // namespace pando
