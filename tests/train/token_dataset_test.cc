#include "train/token_dataset.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "engine/error.h"
#include "tests/train/testing.h"

namespace pando {
namespace {

using Ids = std::vector<int32_t>;

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

std::string LlmcHeader(int32_t magic, int32_t version, int32_t count) {
  std::vector<int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return Bytes(header);
}

Ids All(const TokenDataset& data) {
  Ids ids(data.size());
  data.Window(0, ids);
  return ids;
}

TokenDataset Open(const std::vector<std::string>& paths, int64_t vocab_size = 65536) {
  std::vector<TokenSegment> segments;
  for (const std::string& path : paths) {
    auto segment = OpenTokenFile(path);
    EXPECT_TRUE(segment.ok()) << segment.status();
    segments.push_back(*std::move(segment));
  }
  return TokenDataset(std::move(segments), vocab_size);
}

void ExpectError(const absl::Status& status, const std::vector<std::string>& parts) {
  ASSERT_FALSE(status.ok());
  for (const std::string& part : parts) {
    EXPECT_NE(std::string(status.message()).find(part), std::string::npos) << status;
  }
}

TEST(TokenFile, NanoGptAndLlmcForms) {
  const TemporaryFolder folder;
  const std::vector<uint16_t> narrow = {1, 50256, 65535, 0};
  const std::vector<uint32_t> wide = {7, 128000, 2};
  const auto raw = folder.Write("raw.bin", Bytes(narrow));
  const auto gpt2 = folder.Write("gpt2.bin", LlmcHeader(20240520, 1, 4) + Bytes(narrow));
  const auto llama = folder.Write("llama.bin", LlmcHeader(20240801, 7, 3) + Bytes(wide));
  EXPECT_EQ(All(Open({raw})), (Ids{1, 50256, 65535, 0}));
  EXPECT_EQ(All(Open({gpt2})), (Ids{1, 50256, 65535, 0}));
  EXPECT_EQ(All(Open({llama}, 128256)), (Ids{7, 128000, 2}));
  EXPECT_EQ(All(Open({gpt2, llama, raw}, 128256)),
            (Ids{1, 50256, 65535, 0, 7, 128000, 2, 1, 50256, 65535, 0}));
}

TEST(TokenFile, ErrorsNameTheFile) {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& bytes) {
    return OpenTokenFile(folder.Write("x.bin", bytes)).status();
  };
  const std::string ids(20, 1);
  ExpectError(OpenTokenFile(folder.path() + "/none.bin").status(), {"none.bin", "opened"});
  ExpectError(OpenTokenFile(folder.path()).status(), {"regular"});
  ExpectError(error(""), {"x.bin", "empty"});
  ExpectError(error("abc"), {"x.bin", "3 bytes"});
  ExpectError(error(LlmcHeader(20240520, 2, 10) + ids), {"x.bin", "version 2"});
  ExpectError(error(LlmcHeader(20240520, 1, 11) + ids), {"x.bin", "11 tokens"});
  ExpectError(error(LlmcHeader(20240520, 1, 9) + ids), {"x.bin", "9 tokens"});
  ExpectError(error(LlmcHeader(20240520, 1, -1)), {"x.bin", "-1 tokens"});
  ExpectError(error(LlmcHeader(20240801, 7, 10) + ids), {"x.bin", "10 tokens"});
  ExpectError(error(LlmcHeader(20240520, 1, 0).substr(0, 500)), {"x.bin", "0 tokens"});
}

TEST(TokenDataset, WindowsCrossSegments) {
  const TemporaryFolder folder;
  std::vector<std::string> paths;
  Ids want;
  for (const int n : {3, 1, 5, 2}) {
    std::vector<uint16_t> ids(n);
    std::iota(ids.begin(), ids.end(), static_cast<uint16_t>(want.size()));
    paths.push_back(folder.Write(std::to_string(want.size()), Bytes(ids)));
    want.insert(want.end(), ids.begin(), ids.end());
  }
  const TokenDataset data = Open(paths);
  ASSERT_EQ(data.size(), 11);
  for (int64_t begin = 0; begin <= 11; ++begin) {
    for (int64_t end = begin; end <= 11; ++end) {
      const Ids part(want.begin() + begin, want.begin() + end);
      Ids got(end - begin);
      data.Window(begin, got);
      EXPECT_EQ(got, part);
      EXPECT_EQ(All(data.Slice(begin, end)), part);
      if (begin == 0) continue;
      EXPECT_EQ(All(data.Slice(1, 11).Slice(begin - 1, end - 1)), part);
    }
  }
  Ids four(4);
  EXPECT_THROW(data.Window(8, four), InvalidArgument);
  EXPECT_THROW(data.Window(-1, four), InvalidArgument);
  EXPECT_THROW(data.Slice(0, 8).Window(5, four), InvalidArgument);
  EXPECT_THROW(data.Slice(5, 12), InvalidArgument);
}

TEST(TokenDataset, IdsOutsideTheVocabularyAreNamed) {
  const TemporaryFolder folder;
  const auto good = folder.Write("good.bin", Bytes(std::vector<uint16_t>{1, 2, 3}));
  const auto bad = folder.Write("bad.bin", Bytes(std::vector<uint16_t>{4, 5, 100, 6}));
  EXPECT_TRUE(Open({good, bad}, 101).CheckTokens().ok());
  ExpectError(Open({good, bad}, 100).CheckTokens(), {"bad.bin", "token 2", "id 100"});
  const auto huge =
      folder.Write("huge.bin", LlmcHeader(20240801, 7, 1) + Bytes(std::vector<uint32_t>{~0u}));
  ExpectError(Open({huge}, 100).CheckTokens(), {"huge.bin", "id 4294967295"});
  Ids ids(6);
  try {
    Open({good, bad}, 100).Window(1, ids);
    FAIL();
  } catch (const InvalidArgument& e) {
    EXPECT_NE(std::string(e.what()).find("bad.bin: token 2 has the id 100"), std::string::npos)
        << e.what();
  }
  EXPECT_TRUE(TokenDataset().CheckTokens().ok());
}

TEST(TokenDataset, FingerprintSeesContentNotFiles) {
  const TemporaryFolder folder;
  std::vector<uint16_t> ids(20000);
  std::iota(ids.begin(), ids.end(), uint16_t{0});
  const auto whole = folder.Write("whole", Bytes(ids));
  const auto first = folder.Write("first", Bytes(ids).substr(0, 1000));
  const auto second = folder.Write("second", Bytes(ids).substr(1000));
  const std::string print = Open({whole}).Fingerprint();
  EXPECT_EQ(print.size(), 16u);
  EXPECT_EQ(Open({first, second}).Fingerprint(), print);
  EXPECT_NE(Open({second, first}).Fingerprint(), print);
  EXPECT_NE(Open({whole}).Slice(0, 19999).Fingerprint(), print);
  ids[19999] ^= 1;
  EXPECT_NE(Open({folder.Write("changed", Bytes(ids))}).Fingerprint(), print);
  EXPECT_EQ(TokenDataset().Fingerprint().size(), 16u);
}

}  // namespace
}  // namespace pando
