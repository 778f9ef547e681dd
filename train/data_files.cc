#include "train/data_files.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

bool EndsWith(std::string_view name, std::string_view end) {
  return name.size() >= end.size() && name.substr(name.size() - end.size()) == end;
}

bool IsShard(std::string_view name, std::string_view part) {
  return EndsWith(name, ".bin") && name.find(part) != std::string_view::npos;
}

// A folder's regular files, by name.
class Folder {
 public:
  static absl::StatusOr<Folder> Open(const std::string& path) {
    Folder folder;
    folder.path_ = path;
    std::error_code error;
    for (fs::directory_iterator entry(path, error), end; !error && entry != end;
         entry.increment(error)) {
      std::error_code ignored;
      if (entry->is_regular_file(ignored)) folder.names_.push_back(entry->path().filename());
    }
    if (error) {
      return absl::PermissionDeniedError(
          absl::StrCat(path, ": cannot be listed: ", error.message()));
    }
    std::sort(folder.names_.begin(), folder.names_.end());
    return folder;
  }

  template <typename Predicate>
  std::vector<std::string> Where(Predicate predicate) const {
    std::vector<std::string> found;
    for (const std::string& name : names_) {
      if (predicate(name)) found.push_back(absl::StrCat(path_, "/", name));
    }
    return found;
  }

  std::vector<std::string> Named(std::string_view wanted) const {
    return Where([&](const std::string& name) { return name == wanted; });
  }

 private:
  std::string path_;
  std::vector<std::string> names_;
};

}  // namespace

absl::StatusOr<DataFiles> FindDataFiles(const std::string& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    return absl::NotFoundError(absl::StrCat("data ", path, ": there is no such file or folder"));
  }
  if (!fs::is_directory(path, ignored)) return DataFiles{EndsWith(path, ".bin"), {path}, {}};
  const auto folder = Folder::Open(path);
  if (!folder.ok()) return folder.status();
  const auto shards = [&](std::string_view part) {
    return folder->Where([&](const std::string& name) { return IsShard(name, part); });
  };
  for (DataFiles files : {
           DataFiles{true, folder->Named("train.bin"), folder->Named("val.bin")},
           DataFiles{true, shards("_train_"), shards("_val_")},
           DataFiles{false, folder->Named("train.txt"), folder->Named("val.txt")},
           DataFiles{false, folder->Where([](const auto& n) { return EndsWith(n, ".txt"); }), {}},
           DataFiles{false,
                     folder->Where([](const auto& n) { return n.find('.') == std::string::npos; }),
                     {}},
       }) {
    if (!files.train.empty()) return files;
  }
  return absl::NotFoundError(
      absl::StrCat("data ", path,
                   ": the folder holds no train.bin, *_train_*.bin, *.txt or file without a dot "
                   "in its name"));
}

}  // namespace pando
