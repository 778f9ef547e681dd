#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ckpt/atomic_file.h"
#include "ckpt/byte_source.h"
#include "ckpt/safetensors_header.h"
#include "engine/types.h"

namespace pando {

/// Reads a safetensors file. Opening reads and checks the header only. Not thread-safe.
class SafetensorsReader {
 public:
  static absl::StatusOr<SafetensorsReader> Open(const std::string& path);

  /// As above, from a source that may verify what it reads.
  static absl::StatusOr<SafetensorsReader> Open(std::unique_ptr<ByteSource> source);

  const std::string& path() const { return source_->path(); }

  /// In the order of their bytes: reading in this order is the fastest.
  const std::vector<TensorEntry>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }

  /// nullptr if there is no such tensor.
  const TensorEntry* Find(absl::string_view name) const;

  /// Reads elements first to first + count - 1 of tensor `name`, in row-major order, converted to
  /// `dtype`, into `out`, which has count * SizeOf(dtype) bytes. NotFound for an unknown name,
  /// OutOfRange for elements that the tensor has not, InvalidArgument for a conversion that is not
  /// possible (see CanConvert).
  absl::Status Read(absl::string_view name, int64_t first, int64_t count, DType dtype, void* out);

  /// The same for out.size() elements of type T.
  template <typename T>
  absl::Status Read(absl::string_view name, int64_t first, absl::Span<T> out) {
    return Read(name, first, static_cast<int64_t>(out.size()), DTypeOf<T>::value, out.data());
  }

 private:
  SafetensorsReader(std::unique_ptr<ByteSource> source, SafetensorsHeader header);

  absl::Status ReadConverted(const TensorEntry& tensor, int64_t first, int64_t count, DType dtype,
                             void* out);

  std::unique_ptr<ByteSource> source_;
  SafetensorsHeader header_;
  std::map<std::string, size_t, std::less<>> index_;
};

/// Writes a safetensors file from front to back: the tensors are declared first, then their bytes
/// are appended in that order, in pieces of any size, so that no second copy of them is needed.
class SafetensorsWriter {
 public:
  /// Writes the header into `out`, which is empty and outlives this, and takes the disk space of
  /// all tensors, so that a full disk shows here.
  static absl::StatusOr<SafetensorsWriter> Begin(
      OutputFile* out, std::vector<TensorDecl> tensors,
      const std::map<std::string, std::string>& metadata);

  /// Appends `count` elements of the tensor whose turn it is, converted from `dtype` to the
  /// declared type. They may not reach into the next tensor.
  absl::Status Append(DType dtype, const void* data, int64_t count);

  template <typename T>
  absl::Status Append(absl::Span<const T> data) {
    return Append(DTypeOf<T>::value, data.data(), static_cast<int64_t>(data.size()));
  }

  /// FailedPrecondition if bytes are missing. Making the file durable is left to its owner.
  absl::Status CheckComplete() const;

 private:
  SafetensorsWriter(OutputFile* out, std::vector<TensorDecl> tensors);

  void SkipFull();

  OutputFile* out_;
  std::vector<TensorDecl> tensors_;
  size_t current_ = 0;   // the tensor whose turn it is
  int64_t written_ = 0;  // elements of it
  std::vector<uint8_t> staging_;
};

/// Provides elements first to first + count - 1 of `tensor`, in its declared dtype, into `out`.
using TensorSource =
    std::function<absl::Status(const TensorDecl& tensor, int64_t first, int64_t count, void* out)>;

/// Writes all tensors into `out`, asking `source` for pieces of at most 4 MiB in order. Making the
/// file durable is left to its owner.
absl::Status WriteSafetensors(OutputFile* out, const std::vector<TensorDecl>& tensors,
                              const std::map<std::string, std::string>& metadata,
                              const TensorSource& source);

/// The same into a file that appears at `path` complete or not at all.
absl::Status WriteSafetensorsFile(const std::string& path, const std::vector<TensorDecl>& tensors,
                                  const std::map<std::string, std::string>& metadata,
                                  const TensorSource& source);

}  // namespace pando
