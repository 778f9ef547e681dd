#include "ckpt/manifest.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ckpt/file.h"
#include "ckpt/json.h"
#include "ckpt/safetensors_header.h"
#include "engine/status.h"

namespace pando {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr char kFormat[] = "pando-checkpoint";
constexpr int64_t kVersion = 1;
constexpr absl::string_view kChecksumStart = ",\n \"checksum\": \"xxh3-64:";
constexpr absl::string_view kChecksumEnd = "\"\n}\n";
constexpr FileKind kFileKinds[] = {FileKind::kWeights, FileKind::kState, FileKind::kText};

// A JSON text with its last field, the checksum of what precedes it.
std::string Seal(std::string json) {
  json.resize(json.rfind('}'));
  while (!json.empty() && json.back() == '\n') json.pop_back();
  const uint64_t checksum = Checksum64(BytesOf(json));
  return absl::StrCat(json, kChecksumStart, ChecksumToHex(checksum), kChecksumEnd);
}

// Whether `text` is one that Seal has made.
bool IsSealed(absl::string_view text) {
  constexpr size_t kDigits = 16;
  if (!absl::EndsWith(text, kChecksumEnd)) return false;
  text.remove_suffix(kChecksumEnd.size());
  uint64_t checksum;
  if (text.size() < kDigits || !ChecksumFromHex(text.substr(text.size() - kDigits), &checksum)) {
    return false;
  }
  text.remove_suffix(kDigits);
  if (!absl::EndsWith(text, kChecksumStart)) return false;
  text.remove_suffix(kChecksumStart.size());
  return Checksum64(BytesOf(text)) == checksum;
}

OrderedJson ToJson(const CheckpointFile& file) {
  OrderedJson chunks = OrderedJson::array();
  for (const uint64_t chunk : file.digest.chunks) chunks.push_back(ChecksumToHex(chunk));
  return {{"name", file.name},           {"kind", Name(file.kind)},
          {"size", file.digest.size},    {"chunk_bytes", file.digest.chunk_bytes},
          {"chunks", std::move(chunks)}, {"whole", file.digest.whole}};
}

absl::StatusOr<FileKind> ParseKind(const std::string& text, const std::string& what) {
  for (const FileKind kind : kFileKinds) {
    if (text == Name(kind)) return kind;
  }
  return absl::InvalidArgumentError(absl::StrCat(what, ": unknown kind \"", text, "\""));
}

absl::StatusOr<CheckpointFile> ParseFile(const std::string& path, const json::Value& value) {
  CheckpointFile file;
  PANDO_ASSIGN_OR_RETURN(file.name, json::String(value, "name", path));
  const std::string what = absl::StrCat(path, ": file \"", file.name, "\"");
  if (!IsCheckpointFileName(file.name) || file.name == kManifestFile) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": not a name that a file may have"));
  }
  PANDO_ASSIGN_OR_RETURN(const std::string kind, json::String(value, "kind", what));
  PANDO_ASSIGN_OR_RETURN(file.kind, ParseKind(kind, what));
  PANDO_ASSIGN_OR_RETURN(file.digest.size, json::Int(value, "size", what));
  PANDO_ASSIGN_OR_RETURN(file.digest.chunk_bytes, json::Int(value, "chunk_bytes", what));
  PANDO_ASSIGN_OR_RETURN(file.digest.whole, json::String(value, "whole", what));
  PANDO_ASSIGN_OR_RETURN(const json::Value* chunks, json::Array(value, "chunks", what));
  for (const json::Value& chunk : *chunks) {
    uint64_t checksum;
    if (!chunk.is_string() || !ChecksumFromHex(chunk.get<std::string>(), &checksum)) {
      return absl::InvalidArgumentError(absl::StrCat(what, ": a chunk is no checksum"));
    }
    file.digest.chunks.push_back(checksum);
  }
  return file;
}

absl::StatusOr<CheckpointInfo> ParseInfo(const std::string& path, const json::Value& root) {
  CheckpointInfo info;
  PANDO_ASSIGN_OR_RETURN(info.data_step, json::Int(root, "data_step", path));
  PANDO_ASSIGN_OR_RETURN(info.optimizer_step, json::Int(root, "optimizer_step", path));
  PANDO_ASSIGN_OR_RETURN(info.lineage, json::String(root, "lineage", path));
  PANDO_ASSIGN_OR_RETURN(info.flat_size, json::Int(root, "flat_size", path));
  PANDO_ASSIGN_OR_RETURN(const json::Value* metadata, json::Object(root, "metadata", path));
  for (const auto& [key, value] : metadata->items()) {
    PANDO_ASSIGN_OR_RETURN(info.metadata[key], json::String(*metadata, key.c_str(), path));
  }
  PANDO_ASSIGN_OR_RETURN(const json::Value* layout, json::Array(root, "layout", path));
  for (const json::Value& value : *layout) {
    FlatParameter parameter;
    PANDO_ASSIGN_OR_RETURN(parameter.name, json::String(value, "name", path));
    PANDO_ASSIGN_OR_RETURN(parameter.shape, json::Ints(value, "shape", path));
    PANDO_ASSIGN_OR_RETURN(parameter.offset, json::Int(value, "offset", path));
    info.layout.push_back(std::move(parameter));
  }
  return info;
}

}  // namespace

const CheckpointFile* Manifest::Find(absl::string_view name) const {
  const auto found = std::find_if(files.begin(), files.end(),
                                  [&](const CheckpointFile& file) { return file.name == name; });
  return found == files.end() ? nullptr : &*found;
}

int64_t Manifest::TotalBytes() const {
  int64_t bytes = 0;
  for (const CheckpointFile& file : files) bytes += file.digest.size;
  return bytes;
}

const char* Name(FileKind kind) {
  switch (kind) {
    case FileKind::kWeights:
      return "weights";
    case FileKind::kState:
      return "state";
    case FileKind::kText:
      return "text";
  }
  return "?";
}

bool IsCheckpointFileName(absl::string_view name) {
  constexpr size_t kMaxLength = 200;
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  if (name.empty() || name.size() > kMaxLength || !is_plain(name[0])) return false;
  if (!std::all_of(name.begin(), name.end(),
                   [&](char c) { return is_plain(c) || c == '.' || c == '_' || c == '-'; })) {
    return false;
  }
  return absl::EndsWith(name, ".safetensors") || absl::EndsWith(name, ".json") ||
         absl::EndsWith(name, ".txt") || absl::EndsWith(name, ".toml") ||
         absl::EndsWith(name, ".model");
}

absl::Status CheckInfo(const CheckpointInfo& info) {
  if (info.data_step < 0 || info.optimizer_step < 0 || info.flat_size < 0) {
    return absl::InvalidArgumentError("steps and flat size can't be negative");
  }
  int64_t end = 0;  // of the parameters so far
  for (const FlatParameter& parameter : info.layout) {
    const std::optional<int64_t> elements = ElementCount(parameter.shape);
    if (!elements || parameter.offset < end || *elements > info.flat_size ||
        parameter.offset > info.flat_size - *elements) {
      return absl::InvalidArgumentError(absl::StrCat(
          "parameter \"", parameter.name, "\" at offset ", parameter.offset,
          " overlaps the one before it or leaves the flat space of ", info.flat_size, " elements"));
    }
    end = parameter.offset + *elements;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> FormatManifest(const Manifest& manifest) {
  const CheckpointInfo& info = manifest.info;
  OrderedJson layout = OrderedJson::array();
  for (const FlatParameter& p : info.layout) {
    layout.push_back({{"name", p.name}, {"shape", p.shape}, {"offset", p.offset}});
  }
  OrderedJson files = OrderedJson::array();
  for (const CheckpointFile& file : manifest.files) files.push_back(ToJson(file));
  OrderedJson root;
  root["format"] = kFormat;
  root["version"] = kVersion;
  root["data_step"] = info.data_step;
  root["optimizer_step"] = info.optimizer_step;
  root["lineage"] = info.lineage;
  root["metadata"] = OrderedJson::object();
  for (const auto& [key, value] : info.metadata) root["metadata"][key] = value;
  root["flat_size"] = info.flat_size;
  root["layout"] = std::move(layout);
  root["files"] = std::move(files);
  PANDO_ASSIGN_OR_RETURN(std::string text, json::DumpLines(root, kManifestFile));
  return Seal(std::move(text));
}

absl::StatusOr<Manifest> ParseManifest(const std::string& path, absl::string_view text) {
  if (!IsSealed(text)) {
    return absl::DataLossError(
        absl::StrCat(path,
                     ": does not end with its right checksum: it was truncated, damaged or "
                     "edited; use another checkpoint"));
  }
  PANDO_ASSIGN_OR_RETURN(const json::Value root, json::Parse(text, path));
  PANDO_ASSIGN_OR_RETURN(const std::string format, json::String(root, "format", path));
  PANDO_ASSIGN_OR_RETURN(const int64_t version, json::Int(root, "version", path));
  if (format != kFormat || version != kVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is ", format, " version ", version, ", but this program reads ",
                     kFormat, " version ", kVersion, "; use the program that wrote it"));
  }
  Manifest manifest;
  PANDO_ASSIGN_OR_RETURN(manifest.info, ParseInfo(path, root));
  if (const absl::Status status = CheckInfo(manifest.info); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", status.message()));
  }
  PANDO_ASSIGN_OR_RETURN(const json::Value* files, json::Array(root, "files", path));
  for (const json::Value& value : *files) {
    PANDO_ASSIGN_OR_RETURN(CheckpointFile file, ParseFile(path, value));
    if (manifest.Find(file.name) != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": lists ", file.name, " twice"));
    }
    manifest.files.push_back(std::move(file));
  }
  return manifest;
}

}  // namespace pando
