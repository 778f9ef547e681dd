#include "ckpt/safetensors_header.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckpt/json.h"
#include "engine/status.h"

namespace pando {
namespace {

constexpr char kMetadata[] = "__metadata__";

struct TypeName {
  const char* name;
  int64_t bits;
  std::optional<DType> dtype;
};

constexpr TypeName kTypeNames[] = {
    {"F32", 32, DType::kF32},     {"BF16", 16, DType::kBF16},   {"F16", 16, DType::kF16},
    {"I32", 32, DType::kI32},     {"I64", 64, DType::kI64},     {"F64", 64, DType::kF64},
    {"BOOL", 8, std::nullopt},    {"U8", 8, std::nullopt},      {"I8", 8, std::nullopt},
    {"U16", 16, std::nullopt},    {"I16", 16, std::nullopt},    {"U32", 32, std::nullopt},
    {"U64", 64, std::nullopt},    {"F4", 4, std::nullopt},      {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt}, {"F8_E5M2", 8, std::nullopt}, {"F8_E4M3", 8, std::nullopt},
    {"F8_E8M0", 8, std::nullopt}, {"C64", 64, std::nullopt},
};

const TypeName* FindType(const std::string& name) {
  for (const TypeName& type : kTypeNames) {
    if (name == type.name) return &type;
  }
  return nullptr;
}

absl::Status Bad(const std::string& path, const std::string& problem) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": no valid safetensors file: ", problem,
                                                 "; fetch or write the file again"));
}

// Whether `bytes` is what `elements` of `bits` each take.
bool SizeMatches(int64_t elements, int64_t bits, int64_t bytes) {
  int64_t total;
  return !__builtin_mul_overflow(elements, bits, &total) && total % 8 == 0 && total / 8 == bytes;
}

absl::StatusOr<TensorEntry> ParseEntry(const std::string& path, const std::string& name,
                                       const json::Value& value, int64_t data_begin,
                                       int64_t data_bytes) {
  const std::string what = absl::StrCat(path, ": tensor \"", name, "\"");
  TensorEntry entry;
  entry.name = name;
  PANDO_ASSIGN_OR_RETURN(entry.dtype_name, json::String(value, "dtype", what));
  PANDO_ASSIGN_OR_RETURN(entry.shape, json::Ints(value, "shape", what));
  PANDO_ASSIGN_OR_RETURN(const std::vector<int64_t> offsets,
                         json::Ints(value, "data_offsets", what));
  const std::optional<int64_t> elements = ElementCount(entry.shape);
  if (!elements) return Bad(path, absl::StrCat("impossible shape of tensor \"", name, "\""));
  entry.elements = *elements;
  if (offsets.size() != 2 || offsets[0] < 0 || offsets[0] > offsets[1] || offsets[1] > data_bytes) {
    return Bad(path, absl::StrCat("tensor \"", name, "\" lies outside of the file's ", data_bytes,
                                  " bytes of data"));
  }
  const int64_t bytes = offsets[1] - offsets[0];
  entry.begin = data_begin + offsets[0];
  entry.end = data_begin + offsets[1];
  if (const TypeName* type = FindType(entry.dtype_name)) {
    entry.dtype = type->dtype;
    if (!SizeMatches(entry.elements, type->bits, bytes)) {
      return Bad(path, absl::StrCat("tensor \"", name, "\" has ", bytes, " bytes, which is not ",
                                    entry.elements, " elements of ", entry.dtype_name));
    }
  }
  return entry;
}

absl::Status ParseMetadata(const std::string& path, const json::Value& value,
                           std::map<std::string, std::string>* metadata) {
  if (!value.is_object()) return Bad(path, "__metadata__ is no object");
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) return Bad(path, absl::StrCat("metadata \"", key, "\" is no string"));
    metadata->emplace(key, text.get<std::string>());
  }
  return absl::OkStatus();
}

// Sorts by place and checks that the tensors follow each other from `begin` to `end`.
absl::Status CheckContiguous(const std::string& path, std::vector<TensorEntry>* tensors,
                             int64_t begin, int64_t end) {
  std::sort(tensors->begin(), tensors->end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  for (const TensorEntry& tensor : *tensors) {
    if (tensor.begin != begin) {
      return Bad(path, absl::StrCat("a hole or an overlap before tensor \"", tensor.name, "\""));
    }
    begin = tensor.end;
  }
  if (begin == end) return absl::OkStatus();
  return Bad(path, absl::StrCat(end - begin, " bytes after the last tensor"));
}

}  // namespace

const char* SafetensorsName(DType dtype) {
  for (const TypeName& type : kTypeNames) {
    if (type.dtype == dtype) return type.name;
  }
  return "?";
}

std::optional<int64_t> ElementCount(const std::vector<int64_t>& shape) {
  if (std::any_of(shape.begin(), shape.end(), [](int64_t d) { return d < 0; })) return {};
  // Checked before multiplying: the other dimensions of an empty tensor may overflow.
  if (std::count(shape.begin(), shape.end(), 0) > 0) return 0;
  int64_t product = 1;
  for (const int64_t dimension : shape) {
    if (__builtin_mul_overflow(product, dimension, &product)) return {};
  }
  return product;
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(const std::string& path,
                                                         absl::string_view header,
                                                         int64_t file_bytes) {
  if (header.empty() || header[0] != '{') return Bad(path, "its header does not start with '{'");
  PANDO_ASSIGN_OR_RETURN(const json::Value root, json::Parse(header, path));
  const int64_t data_begin = 8 + static_cast<int64_t>(header.size());
  if (file_bytes < data_begin) return Bad(path, "it ends within its header");
  SafetensorsHeader result;
  for (const auto& [name, value] : root.items()) {
    if (name == kMetadata) {
      PANDO_RETURN_IF_ERROR(ParseMetadata(path, value, &result.metadata));
      continue;
    }
    PANDO_ASSIGN_OR_RETURN(TensorEntry entry,
                           ParseEntry(path, name, value, data_begin, file_bytes - data_begin));
    result.tensors.push_back(std::move(entry));
  }
  PANDO_RETURN_IF_ERROR(CheckContiguous(path, &result.tensors, data_begin, file_bytes));
  return result;
}

absl::StatusOr<std::string> FormatSafetensorsHeader(
    const std::string& path, const std::vector<TensorDecl>& tensors,
    const std::map<std::string, std::string>& metadata, int64_t* data_bytes) {
  nlohmann::ordered_json root = nlohmann::ordered_json::object();
  if (!metadata.empty()) root[kMetadata] = metadata;
  std::set<std::string> names = {kMetadata};
  int64_t offset = 0;
  for (const TensorDecl& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": two tensors, or one and the metadata, are named \"", tensor.name,
                       "\"; give each its own name"));
    }
    const std::optional<int64_t> elements = ElementCount(tensor.shape);
    const int64_t begin = offset;
    int64_t bytes;
    if (!elements || __builtin_mul_overflow(*elements, SizeOf(tensor.dtype), &bytes) ||
        __builtin_add_overflow(offset, bytes, &offset)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": impossible shape of tensor \"", tensor.name, "\""));
    }
    // Names are unique: appending avoids the library's linear search for a key.
    root.get_ref<nlohmann::ordered_json::object_t&>().emplace_back(
        tensor.name, nlohmann::ordered_json{{"dtype", SafetensorsName(tensor.dtype)},
                                            {"shape", tensor.shape},
                                            {"data_offsets", {begin, offset}}});
  }
  PANDO_ASSIGN_OR_RETURN(std::string text, json::Dump(root, path));
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (static_cast<int64_t>(text.size()) > kMaxSafetensorsHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": too many tensors for one safetensors file; use several files"));
  }
  const uint64_t length = text.size();
  std::string result(sizeof(length), '\0');
  std::memcpy(result.data(), &length, sizeof(length));
  *data_bytes = offset;
  return result + text;
}

}  // namespace pando
