// Compares ids over whole texts with those that make_tokenizer_golden.py had Hugging Face's
// tokenizers make, and counts on tiny Shakespeare. Both need files that are not in the tree, named
// by environment variables; without them the tests are skipped.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "tests/train/testing.h"
#include "train/tokenizer.h"

namespace pando {
namespace {

TEST(TokenizerOracle, IdsOverWholeTexts) {
  const char* folder = std::getenv("PANDO_TOKENIZER_ORACLE");
  if (folder == nullptr) GTEST_SKIP() << "PANDO_TOKENIZER_ORACLE names no folder";
  const auto tokenizer = LoadTokenizer(std::string(folder) + "/tokenizer");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  int texts = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".text") continue;
    SCOPED_TRACE(entry.path());
    const std::string text = ReadAll(entry.path());
    const std::string raw = ReadAll(std::filesystem::path(entry.path()).replace_extension(".ids"));
    std::vector<int32_t> want(raw.size() / 4);
    std::memcpy(want.data(), raw.data(), raw.size());
    const auto start = std::chrono::steady_clock::now();
    const auto ids = (*tokenizer)->Encode(text);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_TRUE(*ids == want);
    const auto back = (*tokenizer)->Decode(*ids);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_TRUE(*back == text);
    std::printf("%s: %zu bytes, %zu ids, %.1f MB/s\n", entry.path().stem().c_str(), text.size(),
                ids->size(), static_cast<double>(text.size()) * 1e-6 / took.count());
    ++texts;
  }
  EXPECT_GT(texts, 0);
}

// nanoGPT's README: "length of dataset in characters: 1115394, vocab size: 65"; the ids of the
// vocabulary's ends follow from its sorted list "\n !$&',-.3:;?A-Za-z".
TEST(TinyShakespeare, CharacterLevel) {
  const char* folder = std::getenv("PANDO_SHARED_DATA");
  if (folder == nullptr) GTEST_SKIP() << "PANDO_SHARED_DATA names no folder";
  const std::string path = std::string(folder) + "/tinyshakespeare.txt";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  const std::string text = ReadAll(path);
  const auto tokenizer = LoadTokenizer("char", text);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->vocab_size(), 65);
  const auto ids = (*tokenizer)->Encode(text);
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(ids->size(), 1115394u);
  EXPECT_EQ(*(*tokenizer)->Encode("\n !Az"), (std::vector<int32_t>{0, 1, 2, 13, 64}));
}

}  // namespace
}  // namespace pando
