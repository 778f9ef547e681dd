#include "ckpt/tensor_file_set.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ckpt/file.h"
#include "ckpt/json.h"
#include "engine/status.h"

namespace pando {
namespace {

constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";
constexpr int64_t kMaxIndexBytes = int64_t{64} << 20;

// tensor -> file name, from an index file.
absl::StatusOr<std::map<std::string, std::string>> ReadWeightMap(const std::string& path) {
  PANDO_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxIndexBytes));
  PANDO_ASSIGN_OR_RETURN(const json::Value root, json::Parse(text, path));
  PANDO_ASSIGN_OR_RETURN(const json::Value* weights, json::Object(root, "weight_map", path));
  std::map<std::string, std::string> result;
  for (const auto& [tensor, file] : weights->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || absl::StrContains(name, "/") || name[0] == '.') {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": tensor \"", tensor, "\" is not mapped to a file in this folder"));
    }
    result[tensor] = name;
  }
  return result;
}

}  // namespace

absl::StatusOr<TensorFileSet> TensorFileSet::Open(const std::string& path) {
  if (absl::EndsWith(path, ".json")) return OpenIndex(path);
  if (PathExists(JoinPath(path, kSingleFile))) return Open(JoinPath(path, kSingleFile));
  if (PathExists(JoinPath(path, kIndexFile))) return OpenIndex(JoinPath(path, kIndexFile));
  if (IsPlainFolder(path)) {
    return absl::NotFoundError(absl::StrCat(path, ": this folder has neither ", kSingleFile,
                                            " nor ", kIndexFile,
                                            "; save the model in the safetensors format"));
  }
  PANDO_ASSIGN_OR_RETURN(SafetensorsReader reader, SafetensorsReader::Open(path));
  std::vector<SafetensorsReader> readers;
  readers.push_back(std::move(reader));
  return FromReaders(std::move(readers));
}

absl::StatusOr<TensorFileSet> TensorFileSet::OpenIndex(const std::string& path) {
  PANDO_ASSIGN_OR_RETURN(const auto weight_map, ReadWeightMap(path));
  TensorFileSet set;
  set.path_ = path;
  std::map<std::string, size_t> opened;  // file name -> reader
  for (const auto& [tensor, file] : weight_map) {
    const auto [place, is_new] = opened.emplace(file, set.readers_.size());
    if (is_new) {
      PANDO_ASSIGN_OR_RETURN(SafetensorsReader reader,
                             SafetensorsReader::Open(JoinPath(ParentFolder(path), file)));
      set.readers_.push_back(std::move(reader));
    }
    if (set.readers_[place->second].Find(tensor) == nullptr) {
      return absl::NotFoundError(absl::StrCat(path, ": says that tensor \"", tensor, "\" is in ",
                                              file, ", but it is not; fetch both files again"));
    }
    set.where_[tensor] = place->second;
  }
  return set;
}

absl::StatusOr<TensorFileSet> TensorFileSet::FromReaders(std::vector<SafetensorsReader> readers) {
  TensorFileSet set;
  set.readers_ = std::move(readers);
  for (size_t i = 0; i < set.readers_.size(); ++i) {
    set.path_ =
        set.readers_.size() == 1 ? set.readers_[i].path() : ParentFolder(set.readers_[i].path());
    for (const TensorEntry& tensor : set.readers_[i].tensors()) {
      const auto [place, is_new] = set.where_.emplace(tensor.name, i);
      if (!is_new) {
        return absl::InvalidArgumentError(absl::StrCat(set.readers_[i].path(), ": tensor \"",
                                                       tensor.name, "\" is also in ",
                                                       set.readers_[place->second].path()));
      }
    }
  }
  return set;
}

std::vector<std::string> TensorFileSet::Names() const {
  std::vector<std::string> names;
  names.reserve(where_.size());
  for (const auto& [name, reader] : where_) names.push_back(name);
  return names;
}

const TensorEntry* TensorFileSet::Find(absl::string_view name) const {
  const auto found = where_.find(std::string(name));
  return found == where_.end() ? nullptr : readers_[found->second].Find(name);
}

absl::Status TensorFileSet::Read(absl::string_view name, int64_t first, int64_t count, DType dtype,
                                 void* out) {
  const auto found = where_.find(std::string(name));
  if (found == where_.end()) {
    return absl::NotFoundError(absl::StrCat(path_, ": has no tensor \"", name, "\""));
  }
  return readers_[found->second].Read(name, first, count, dtype, out);
}

}  // namespace pando
