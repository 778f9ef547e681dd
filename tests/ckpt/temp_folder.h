#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckpt/atomic_file.h"
#include "ckpt/file.h"

namespace pando {

/// A new folder, removed with this object.
class TempFolder {
 public:
  TempFolder() : path_(JoinPath(::testing::TempDir(), "folder" + UniqueSuffix())) {
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return JoinPath(path_, name); }

 private:
  std::string path_;
};

inline void WriteBytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

inline std::string ReadBytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// ListFolder, by value: a range-for over `*ListFolder(...)` would outlive what it walks over.
inline std::vector<std::string> NamesIn(const std::string& folder) {
  auto names = ListFolder(folder);
  EXPECT_TRUE(names.ok()) << names.status();
  return names.ok() ? *std::move(names) : std::vector<std::string>{};
}

inline absl::Status StatusOf(const absl::Status& status) { return status; }
template <typename T>
absl::Status StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

/// For Status and StatusOr, with the message when it fails.
#define EXPECT_OK(expr)                                        \
  do {                                                         \
    const absl::Status pando_status = ::pando::StatusOf(expr); \
    EXPECT_TRUE(pando_status.ok()) << pando_status;            \
  } while (0)
#define ASSERT_OK(expr)                                        \
  do {                                                         \
    const absl::Status pando_status = ::pando::StatusOf(expr); \
    ASSERT_TRUE(pando_status.ok()) << pando_status;            \
  } while (0)

}  // namespace pando
