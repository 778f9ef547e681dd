#include "ckpt/safetensors.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/convert.h"
#include "engine/status.h"

namespace pando {
namespace {

constexpr int64_t kPieceBytes = int64_t{4} << 20;

}  // namespace

absl::StatusOr<SafetensorsReader> SafetensorsReader::Open(const std::string& path) {
  PANDO_ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> source, OpenFile(path));
  return Open(std::move(source));
}

absl::StatusOr<SafetensorsReader> SafetensorsReader::Open(std::unique_ptr<ByteSource> source) {
  uint64_t length = 0;
  if (source->size() < 8) {
    return absl::InvalidArgumentError(
        absl::StrCat(source->path(), ": no valid safetensors file: it has only ", source->size(),
                     " bytes; fetch or write the file again"));
  }
  PANDO_RETURN_IF_ERROR(source->ReadAt(0, {reinterpret_cast<uint8_t*>(&length), 8}));
  const auto rest = static_cast<uint64_t>(source->size() - 8);
  if (length > static_cast<uint64_t>(kMaxSafetensorsHeaderBytes) || length > rest) {
    return absl::InvalidArgumentError(
        absl::StrCat(source->path(), ": no valid safetensors file: it claims a header of ", length,
                     " bytes; fetch or write the file again"));
  }
  std::string text(length, '\0');
  PANDO_RETURN_IF_ERROR(source->ReadAt(8, {reinterpret_cast<uint8_t*>(text.data()), text.size()}));
  PANDO_ASSIGN_OR_RETURN(SafetensorsHeader header,
                         ParseSafetensorsHeader(source->path(), text, source->size()));
  return SafetensorsReader(std::move(source), std::move(header));
}

SafetensorsReader::SafetensorsReader(std::unique_ptr<ByteSource> source, SafetensorsHeader header)
    : source_(std::move(source)), header_(std::move(header)) {
  for (size_t i = 0; i < header_.tensors.size(); ++i) index_[header_.tensors[i].name] = i;
}

const TensorEntry* SafetensorsReader::Find(absl::string_view name) const {
  const auto found = index_.find(std::string(name));
  return found == index_.end() ? nullptr : &header_.tensors[found->second];
}

absl::Status SafetensorsReader::Read(absl::string_view name, int64_t first, int64_t count,
                                     DType dtype, void* out) {
  const TensorEntry* tensor = Find(name);
  if (tensor == nullptr) {
    return absl::NotFoundError(absl::StrCat(path(), ": has no tensor \"", name, "\""));
  }
  if (first < 0 || count < 0 || count > tensor->elements || first > tensor->elements - count) {
    return absl::OutOfRangeError(absl::StrCat(path(), ": elements ", first, " to ", first, "+",
                                              count, " of tensor \"", name, "\" asked for, but it ",
                                              "has ", tensor->elements));
  }
  if (!tensor->dtype || !CanConvert(*tensor->dtype, dtype)) {
    return absl::InvalidArgumentError(absl::StrCat(path(), ": tensor \"", name, "\" is ",
                                                   tensor->dtype_name, " and can't be read as ",
                                                   Name(dtype)));
  }
  if (*tensor->dtype != dtype) return ReadConverted(*tensor, first, count, dtype, out);
  return source_->ReadAt(tensor->begin + first * SizeOf(dtype),
                         {static_cast<uint8_t*>(out), static_cast<size_t>(count * SizeOf(dtype))});
}

absl::Status SafetensorsReader::ReadConverted(const TensorEntry& tensor, int64_t first,
                                              int64_t count, DType dtype, void* out) {
  const int64_t size = SizeOf(*tensor.dtype);
  const int64_t piece = std::min(count, kPieceBytes / size);
  std::vector<uint8_t> staging(static_cast<size_t>(piece * size));
  for (int64_t done = 0; done < count; done += piece) {
    const int64_t n = std::min(piece, count - done);
    PANDO_RETURN_IF_ERROR(source_->ReadAt(tensor.begin + (first + done) * size,
                                          {staging.data(), static_cast<size_t>(n * size)}));
    ConvertElements(*tensor.dtype, staging.data(), dtype,
                    static_cast<uint8_t*>(out) + done * SizeOf(dtype), n);
  }
  return absl::OkStatus();
}

absl::StatusOr<SafetensorsWriter> SafetensorsWriter::Begin(
    OutputFile* out, std::vector<TensorDecl> tensors,
    const std::map<std::string, std::string>& metadata) {
  int64_t data_bytes = 0;
  PANDO_ASSIGN_OR_RETURN(const std::string header,
                         FormatSafetensorsHeader(out->path(), tensors, metadata, &data_bytes));
  PANDO_RETURN_IF_ERROR(out->Reserve(static_cast<int64_t>(header.size()) + data_bytes));
  PANDO_RETURN_IF_ERROR(out->Append(BytesOf(header)));
  return SafetensorsWriter(out, std::move(tensors));
}

SafetensorsWriter::SafetensorsWriter(OutputFile* out, std::vector<TensorDecl> tensors)
    : out_(out), tensors_(std::move(tensors)) {
  SkipFull();
}

void SafetensorsWriter::SkipFull() {
  while (current_ < tensors_.size() && written_ == *ElementCount(tensors_[current_].shape)) {
    ++current_;
    written_ = 0;
  }
}

absl::Status SafetensorsWriter::Append(DType dtype, const void* data, int64_t count) {
  if (count == 0) return absl::OkStatus();
  if (current_ == tensors_.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat(out_->path(), ": all declared tensors have been written already"));
  }
  const TensorDecl& tensor = tensors_[current_];
  if (count < 0 || count > *ElementCount(tensor.shape) - written_) {
    return absl::OutOfRangeError(absl::StrCat(out_->path(), ": ", count, " elements after ",
                                              written_, " are more than tensor \"", tensor.name,
                                              "\" has"));
  }
  if (!CanConvert(dtype, tensor.dtype)) {
    return absl::InvalidArgumentError(absl::StrCat(out_->path(), ": tensor \"", tensor.name,
                                                   "\" is ", Name(tensor.dtype), ", not ",
                                                   Name(dtype)));
  }
  const int64_t piece = dtype == tensor.dtype ? count : kPieceBytes / SizeOf(tensor.dtype);
  for (int64_t done = 0; done < count; done += piece) {
    const int64_t n = std::min(piece, count - done);
    const auto* from = static_cast<const uint8_t*>(data) + done * SizeOf(dtype);
    const auto bytes = static_cast<size_t>(n * SizeOf(tensor.dtype));
    if (dtype != tensor.dtype) {
      staging_.resize(std::max(staging_.size(), bytes));
      ConvertElements(dtype, from, tensor.dtype, staging_.data(), n);
      from = staging_.data();
    }
    PANDO_RETURN_IF_ERROR(out_->Append({from, bytes}));
  }
  written_ += count;
  SkipFull();
  return absl::OkStatus();
}

absl::Status SafetensorsWriter::CheckComplete() const {
  if (current_ == tensors_.size()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(out_->path(), ": tensor \"", tensors_[current_].name,
                   "\" is incomplete: ", written_, " elements written"));
}

absl::Status WriteSafetensors(OutputFile* out, const std::vector<TensorDecl>& tensors,
                              const std::map<std::string, std::string>& metadata,
                              const TensorSource& source) {
  PANDO_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                         SafetensorsWriter::Begin(out, tensors, metadata));
  std::vector<uint8_t> piece;
  for (const TensorDecl& tensor : tensors) {
    const int64_t elements = *ElementCount(tensor.shape);
    const int64_t step = std::min(elements, kPieceBytes / SizeOf(tensor.dtype));
    piece.resize(std::max(piece.size(), static_cast<size_t>(step * SizeOf(tensor.dtype))));
    for (int64_t first = 0; first < elements; first += step) {
      const int64_t count = std::min(step, elements - first);
      PANDO_RETURN_IF_ERROR(source(tensor, first, count, piece.data()));
      PANDO_RETURN_IF_ERROR(writer.Append(tensor.dtype, piece.data(), count));
    }
  }
  return writer.CheckComplete();
}

absl::Status WriteSafetensorsFile(const std::string& path, const std::vector<TensorDecl>& tensors,
                                  const std::map<std::string, std::string>& metadata,
                                  const TensorSource& source) {
  PANDO_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  PANDO_RETURN_IF_ERROR(WriteSafetensors(&file.out(), tensors, metadata, source));
  return file.Commit().status();
}

}  // namespace pando
