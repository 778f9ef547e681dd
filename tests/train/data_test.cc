#include "train/data.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/train/testing.h"

namespace pando {
namespace {

using Ids = std::vector<int32_t>;

Data Load(const DataOptions& options) {
  auto data = LoadData(options);
  EXPECT_TRUE(data.ok()) << data.status();
  return data.ok() ? *std::move(data) : Data{};
}

void ExpectError(const DataOptions& options, const std::vector<std::string>& parts) {
  const absl::Status status = LoadData(options).status();
  ASSERT_FALSE(status.ok());
  for (const std::string& part : parts) {
    EXPECT_NE(std::string(status.message()).find(part), std::string::npos) << status;
  }
}

Ids All(const TokenDataset& data) {
  Ids ids(data.size());
  data.Window(0, ids);
  return ids;
}

std::string TextOf(const Data& data, const TokenDataset& part) {
  return *data.tokenizer->Decode(All(part));
}

std::string Tokens(const std::vector<uint16_t>& ids) {
  return std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * 2);
}

TEST(LoadData, TextIsSplitByCharacters) {
  const TemporaryFolder folder;
  // 11 characters, int(0.9 * 11) = 9 of them for training; the vocabulary is of all.
  const auto path = folder.Write("t.txt", "\u00e9\u00e9abcabc\u00e9xy");
  const Data data = Load({.path = path});
  EXPECT_EQ(TextOf(data, data.train), "\u00e9\u00e9abcabc\u00e9");
  EXPECT_EQ(TextOf(data, data.validation), "xy");
  EXPECT_EQ(data.vocab_size, 6);
  EXPECT_EQ(data.train.vocab_size(), 6);
  const Data all = Load({.path = path, .validation_fraction = 0});
  EXPECT_EQ(all.train.size(), 11);
  EXPECT_EQ(all.validation.size(), 0);
  const Data bytes = Load({.path = path, .tokenizer = "byte", .validation_fraction = 0.5});
  EXPECT_EQ(TextOf(bytes, bytes.train), "\u00e9\u00e9abc");
  EXPECT_EQ(bytes.vocab_size, 256);
}

TEST(LoadData, FoldersOfTexts) {
  const TemporaryFolder folder;
  folder.Write("b.txt", "567");
  folder.Write("a.txt", "01234");
  folder.Write("c.txt", "89");
  folder.Write("empty.txt", "");
  folder.Write("note.md", "no data");
  const DataOptions by_byte = {.path = folder.path(), .tokenizer = "byte"};
  EXPECT_EQ(TextOf(Load(by_byte), Load(by_byte).train), "012345678");
  EXPECT_EQ(TextOf(Load(by_byte), Load(by_byte).validation), "9");
  // Whole documents are followed by an end of text; the one that is cut, at its end only.
  const Data data = Load({.path = folder.path(), .tokenizer = TestData("bpe")});
  EXPECT_EQ(TextOf(data, data.train), "01234<|endoftext|>567<|endoftext|>8");
  EXPECT_EQ(TextOf(data, data.validation), "9<|endoftext|>");
  EXPECT_EQ(data.train.Slice(0, data.train.size()).vocab_size(), 1258);

  folder.Write("train.txt", "abc");
  folder.Write("val.txt", "abcd");
  const Data pair = Load({.path = folder.path()});
  EXPECT_EQ(TextOf(pair, pair.train), "abc");
  EXPECT_EQ(TextOf(pair, pair.validation), "abcd");
}

TEST(LoadData, FolderOfFilesWithoutDots) {
  const TemporaryFolder folder;
  folder.Write("art", "aaaa");
  folder.Write("art.dat", "index");
  folder.Write("work", "bbbbbb");
  const Data data = Load({.path = folder.path()});
  EXPECT_EQ(TextOf(data, data.train), "aaaabbbbb");
}

TEST(LoadData, TokenFiles) {
  const TemporaryFolder folder;
  const auto single = folder.Write("corpus.bin", Tokens({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  const Data split = Load({.path = single, .vocab_size = 10});
  EXPECT_EQ(All(split.train), (Ids{0, 1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(All(split.validation), (Ids{9}));
  EXPECT_EQ(split.tokenizer, nullptr);
  ExpectError({.path = single}, {"corpus.bin", "--tokenizer or --vocab-size"});
  ExpectError({.path = single, .vocab_size = 9}, {"corpus.bin", "token 9", "id 9"});

  folder.Write("x_train_000002.bin", Tokens({3, 4}));
  folder.Write("x_train_000001.bin", Tokens({1, 2}));
  folder.Write("x_val_000000.bin", Tokens({5}));
  const Data shards = Load({.path = folder.path(), .tokenizer = "byte"});
  EXPECT_EQ(All(shards.train), (Ids{1, 2, 3, 4}));
  EXPECT_EQ(All(shards.validation), (Ids{5}));
  EXPECT_EQ(shards.vocab_size, 256);

  folder.Write("train.bin", Tokens({7, 8}));
  folder.Write("val.bin", Tokens({9}));
  const Data pair = Load({.path = folder.path(), .vocab_size = 50304});
  EXPECT_EQ(All(pair.train), (Ids{7, 8}));
  EXPECT_EQ(All(pair.validation), (Ids{9}));
  EXPECT_EQ(pair.vocab_size, 50304);
}

TEST(LoadData, TokenizerGivenIsUsed) {
  const TemporaryFolder folder;
  const auto path = folder.Write("t.txt", "hello");
  const auto byte = LoadTokenizer("byte");
  ASSERT_TRUE(byte.ok());
  const auto data = LoadData({.path = path, .tokenizer = "char"}, *byte);
  ASSERT_TRUE(data.ok());
  EXPECT_EQ(data->tokenizer, *byte);
  EXPECT_EQ(All(data->train), (Ids{'h', 'e', 'l', 'l'}));
  const auto chars = LoadTokenizer("char", "helo");
  const auto missing = LoadData({.path = folder.Write("u.txt", "help")}, *chars);
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(std::string(missing.status().message()).find("u.txt"), std::string::npos);
}

TEST(LoadData, Errors) {
  const TemporaryFolder folder;
  ExpectError({.path = folder.path() + "/none"}, {"none", "no such file or folder"});
  ExpectError({.path = folder.path()}, {"holds no train.bin"});
  ExpectError({.path = folder.Write("empty.txt", "")}, {"empty.txt", "is empty"});
  ExpectError({.path = folder.Write("odd.bin", "abc"), .vocab_size = 9}, {"odd.bin", "cut short"});
  const auto text = folder.Write("t.txt", "0123456789");
  ExpectError({.path = text, .validation_fraction = 1}, {"validation"});
  ExpectError({.path = text, .validation_fraction = -0.1}, {"validation"});
  ExpectError({.path = text, .vocab_size = 9}, {"smaller than the tokenizer's 10"});
  ExpectError({.path = text, .context = 9}, {"context of 9", "10 training tokens", "there are 9"});
  EXPECT_EQ(Load({.path = text, .context = 8}).train.size(), 9);
  ExpectError({.path = text, .tokenizer = "no/such"}, {"no/such"});
}

// nanoGPT's data/shakespeare_char: "train has 1,003,854 tokens, val has 111,540 tokens".
TEST(TinyShakespeare, NanoGptSplit) {
  const char* folder = std::getenv("PANDO_SHARED_DATA");
  if (folder == nullptr) GTEST_SKIP() << "PANDO_SHARED_DATA names no folder";
  const std::string path = std::string(folder) + "/tinyshakespeare.txt";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  const Data data = Load({.path = path, .context = 256});
  EXPECT_EQ(data.vocab_size, 65);
  EXPECT_EQ(data.train.size(), 1003854);
  EXPECT_EQ(data.validation.size(), 111540);
}

}  // namespace
}  // namespace pando
