#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/types.h"

// The safetensors format, https://github.com/huggingface/safetensors: a u64 (little-endian) with
// the length of the header, the header as JSON, then the tensors' bytes, row-major and
// little-endian, one after the other.

namespace pando {

inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

/// A tensor to be written.
struct TensorDecl {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
};

/// A tensor in a file.
struct TensorEntry {
  std::string name;
  std::string dtype_name;      ///< as in the file: "F32", "BF16", ...
  std::optional<DType> dtype;  ///< none: a type that can be listed, but not read
  std::vector<int64_t> shape;  ///< none: a scalar; a zero: no elements
  int64_t elements = 0;
  int64_t begin = 0;  ///< first byte, from the start of the file
  int64_t end = 0;    ///< one past the last
};

/// What a header says.
struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  ///< in the order of their bytes
  std::map<std::string, std::string> metadata;
};

/// "F32" and so on.
const char* SafetensorsName(DType dtype);

/// Product of the dimensions; none if one is negative or it exceeds 63 bits. 1 for a scalar.
std::optional<int64_t> ElementCount(const std::vector<int64_t>& shape);

/// Parses the JSON of a header and checks all that a reader relies on: known sizes match the
/// shapes, the tensors fill the file to its last byte without hole or overlap, no key occurs twice.
/// `path` is for messages; `file_bytes` is the size of the whole file, of which 8 + header.size()
/// precede the data. InvalidArgument with the reason otherwise.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(const std::string& path,
                                                         absl::string_view header,
                                                         int64_t file_bytes);

/// The first bytes of a file with these tensors, in this order: length and JSON, padded with spaces
/// so that the data starts at a multiple of 8. `*data_bytes` is what has to follow.
absl::StatusOr<std::string> FormatSafetensorsHeader(
    const std::string& path, const std::vector<TensorDecl>& tensors,
    const std::map<std::string, std::string>& metadata, int64_t* data_bytes);

}  // namespace pando
