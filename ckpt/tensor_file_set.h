#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ckpt/safetensors.h"
#include "engine/types.h"

namespace pando {

/// The tensors of a model, found by name in one safetensors file or in several. Not thread-safe.
class TensorFileSet {
 public:
  /// Opens a .safetensors file, an index (*.safetensors.index.json, which maps each tensor to the
  /// file that holds it), or a folder with `model.safetensors` or `model.safetensors.index.json`.
  /// All files of an index are opened, and all that it promises has to be there.
  static absl::StatusOr<TensorFileSet> Open(const std::string& path);

  /// The tensors of all `readers`; InvalidArgument if a name occurs twice.
  static absl::StatusOr<TensorFileSet> FromReaders(std::vector<SafetensorsReader> readers);

  /// Names in alphabetical order.
  std::vector<std::string> Names() const;

  /// dtype, shape and number of elements; nullptr if there is no such tensor.
  const TensorEntry* Find(absl::string_view name) const;

  /// See SafetensorsReader::Read.
  absl::Status Read(absl::string_view name, int64_t first, int64_t count, DType dtype, void* out);

  template <typename T>
  absl::Status Read(absl::string_view name, int64_t first, absl::Span<T> out) {
    return Read(name, first, static_cast<int64_t>(out.size()), DTypeOf<T>::value, out.data());
  }

  /// The files, and where they are needed one by one, their tensors.
  const std::vector<SafetensorsReader>& readers() const { return readers_; }

 private:
  static absl::StatusOr<TensorFileSet> OpenIndex(const std::string& path);

  std::string path_;  // for messages
  std::vector<SafetensorsReader> readers_;
  std::map<std::string, size_t> where_;  // name -> reader
};

}  // namespace pando
