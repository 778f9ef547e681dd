#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "absl/strings/str_cat.h"
#include "ckpt/checkpoint_folder.h"
#include "ckpt/checkpoint_reader.h"
#include "ckpt/checkpoint_writer.h"
#include "tests/ckpt/sample_checkpoint.h"
#include "tests/ckpt/temp_folder.h"

namespace pando {
namespace {

void FlipBit(char* byte, size_t bit) { *byte = static_cast<char>(*byte ^ (1 << bit)); }

// Damages `bytes` in one of the ways in which files go wrong; returns its name.
const char* Damage(std::mt19937_64* random, std::string* bytes) {
  const auto below = [&](size_t n) { return static_cast<size_t>((*random)() % n); };
  const std::string before = *bytes;
  switch (below(6)) {
    case 0:
    case 1:
    case 2:
      FlipBit(&(*bytes)[below(bytes->size())], below(8));
      return "flipped bit";
    case 3:
      bytes->resize(below(bytes->size()));
      return "truncated";
    case 4:
      bytes->append(1 + below(10), '\0');
      return "longer";
    default:
      // A block that was never written: zeros. Where there were zeros already, a flipped bit.
      const size_t begin = below(bytes->size());
      std::fill_n(bytes->begin() + static_cast<std::ptrdiff_t>(begin),
                  std::min<size_t>(512, bytes->size() - begin), '\0');
      if (*bytes == before) FlipBit(&(*bytes)[begin], 0);
      return "zeroed";
  }
}

// Reads everything that a resuming program would.
absl::Status ReadEverything(const std::string& path) { return CheckSample(path, 42); }

TEST(Corruption, IsNeverLoadedAsGood) {
  const TempFolder folder;
  const auto run = RunFolder::Prepare(folder.path(), 0);
  ASSERT_OK(run);
  ASSERT_OK(SaveSample(*run, 42));
  const std::string path = folder.File(StepFolderName(42));
  const std::vector<std::string> files = NamesIn(path);
  ASSERT_EQ(files.size(), 6u);  // weights, two of state, two texts, manifest
  std::mt19937_64 random(1);
  for (int i = 0; i < 1200; ++i) {
    const std::string file = JoinPath(path, files[static_cast<size_t>(i) % files.size()]);
    const std::string good = ReadBytes(file);
    std::string bad = good;
    const char* kind = Damage(&random, &bad);
    const std::string what = absl::StrCat(i, ": ", kind, " ", file);
    WriteBytes(file, bad);
    EXPECT_FALSE(Verify(path).ok()) << what;
    EXPECT_FALSE(ReadEverything(path).ok()) << what;
    if (i % 50 == 0) {
      EXPECT_TRUE(FindLatest(folder.path())->path.empty()) << what;
    }
    WriteBytes(file, good);
  }
  EXPECT_OK(Verify(path));
  EXPECT_OK(ReadEverything(path));
}

TEST(Corruption, MissingAndExchangedFilesShow) {
  const TempFolder folder;
  const auto run = RunFolder::Prepare(folder.path(), 0);
  ASSERT_OK(run);
  ASSERT_OK(SaveSample(*run, 42));
  ASSERT_OK(SaveSample(*run, 41));
  const std::string path = folder.File(StepFolderName(42));
  const std::string other = folder.File(StepFolderName(41));
  for (const std::string& name : NamesIn(path)) {
    const std::string file = JoinPath(path, name);
    const std::string good = ReadBytes(file);
    std::filesystem::remove(file);
    EXPECT_FALSE(Verify(path).ok()) << name;
    EXPECT_FALSE(CheckFiles(path).ok()) << name;
    EXPECT_FALSE(ReadEverything(path).ok()) << name;
    // A file of another step, sound in itself and of the same size. config.json is the same in
    // both.
    WriteBytes(file, ReadBytes(JoinPath(other, name)));
    EXPECT_EQ(Verify(path).ok(), name == "config.json") << name;
    WriteBytes(file, good);
  }
  EXPECT_OK(ReadEverything(path));
}

}  // namespace
}  // namespace pando
