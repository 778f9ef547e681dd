#include "ckpt/manifest.h"

#include <gtest/gtest.h>

#include "ckpt/state_pieces.h"

namespace pando {
namespace {

Manifest Sample() {
  Manifest manifest;
  manifest.info.data_step = 1234;
  manifest.info.optimizer_step = 1230;
  manifest.info.lineage = "run-7 \"quoted\"";
  manifest.info.flat_size = int64_t{1} << 40;
  manifest.info.layout = {{"a", {2, 3}, 0}, {"scalar", {}, 128}, {"b", {int64_t{1} << 39}, 256}};
  manifest.info.metadata = {{"loss_scale", "1024"}, {"note", "\u00e4"}};
  FileDigest digest;
  digest.size = 33554433;
  digest.chunks = {1, 0xFEDCBA9876543210ull, 3};
  digest.whole = WholeChecksum(digest);
  manifest.files = {{"model.safetensors", FileKind::kWeights, digest},
                    {"optimizer.safetensors", FileKind::kState, digest},
                    {"config.json", FileKind::kText, digest}};
  return manifest;
}

TEST(Manifest, RoundTrips) {
  const Manifest want = Sample();
  const auto text = FormatManifest(want);
  ASSERT_TRUE(text.ok()) << text.status();
  const auto got = ParseManifest("m", *text);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->info.data_step, 1234);
  EXPECT_EQ(got->info.optimizer_step, 1230);
  EXPECT_EQ(got->info.lineage, want.info.lineage);
  EXPECT_EQ(got->info.flat_size, want.info.flat_size);
  EXPECT_EQ(got->info.metadata, want.info.metadata);
  ASSERT_EQ(got->info.layout.size(), 3u);
  EXPECT_EQ(got->info.layout[2].name, "b");
  EXPECT_EQ(got->info.layout[2].shape, want.info.layout[2].shape);
  EXPECT_EQ(got->info.layout[2].offset, 256);
  ASSERT_EQ(got->files.size(), 3u);
  EXPECT_EQ(got->files[1].kind, FileKind::kState);
  EXPECT_EQ(got->files[1].digest.chunks, want.files[1].digest.chunks);
  EXPECT_EQ(got->files[1].digest.whole, want.files[1].digest.whole);
  EXPECT_EQ(got->TotalBytes(), 3 * 33554433);
  EXPECT_EQ(got->Find("none"), nullptr);
  EXPECT_EQ(*FormatManifest(*got), *text);
}

TEST(Manifest, EveryFlippedBitAndEveryCutShows) {
  const std::string text = *FormatManifest(Sample());
  for (size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = text;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      ASSERT_FALSE(ParseManifest("m", damaged).ok()) << i << " " << bit;
    }
    ASSERT_FALSE(ParseManifest("m", text.substr(0, i)).ok()) << i;
  }
  EXPECT_FALSE(ParseManifest("m", text + " ").ok());
}

TEST(Manifest, RefusesContradictions) {
  const auto refused = [](const auto& change) {
    Manifest manifest = Sample();
    change(&manifest);
    return !ParseManifest("m", *FormatManifest(manifest)).ok();
  };
  EXPECT_FALSE(refused([](Manifest*) {}));
  EXPECT_TRUE(refused([](Manifest* m) { m->info.data_step = -1; }));
  EXPECT_TRUE(refused([](Manifest* m) { m->info.flat_size = 100; }));
  EXPECT_TRUE(refused([](Manifest* m) { m->info.layout[1].offset = 5; }));
  EXPECT_TRUE(refused([](Manifest* m) { m->info.layout[0].shape = {int64_t{1} << 62, 4}; }));
  EXPECT_TRUE(refused([](Manifest* m) { m->files[0].name = "../x.json"; }));
  EXPECT_TRUE(refused([](Manifest* m) { m->files[0].name = kManifestFile; }));
  EXPECT_TRUE(refused([](Manifest* m) { m->files[0].name = m->files[1].name; }));
}

TEST(Manifest, FileNamesArePlain) {
  for (const char* good : {"config.json", "model-00001-of-00002.safetensors", "merges.txt",
                           "tokenizer.model", "run.toml", "A_1.b.json"}) {
    EXPECT_TRUE(IsCheckpointFileName(good)) << good;
  }
  for (const char* bad : {"", ".json", "-a.json", "a/b.json", "..json", "a b.json", "a", "a.cc",
                          "\u00e4.json", "_a.json"}) {
    EXPECT_FALSE(IsCheckpointFileName(bad)) << bad;
  }
  EXPECT_FALSE(IsCheckpointFileName(std::string(300, 'a') + ".json"));
}

TEST(StatePieces, NamesRoundTripAndHaveOneSpelling) {
  EXPECT_EQ(StateTensorName("exp_avg", 128, 256), "exp_avg.128-256");
  const auto piece = ParseStateTensorName("a.b.0-9223372036854775807");
  ASSERT_TRUE(piece.has_value());
  EXPECT_EQ(piece->state, "a.b");
  EXPECT_EQ(piece->end, 9223372036854775807);
  for (const char* bad : {"", "a", "a.1", "a.1-", "a.-1", "a.2-1", ".1-2", "a.01-2", "a.1-+2",
                          "a. 1-2", "a.1-9223372036854775808", "a.1-2 ", "a-1.2"}) {
    EXPECT_FALSE(ParseStateTensorName(bad).has_value()) << bad;
  }
}

absl::Status Covers(const std::vector<std::pair<int64_t, int64_t>>& pieces, int64_t flat_size) {
  StateIndex index;
  for (const auto& [begin, end] : pieces) {
    const TensorDecl tensor = StateTensorDecl("s", begin, end);
    absl::Status status = index.Add(tensor.name, tensor.dtype, tensor.shape, 0);
    if (!status.ok()) return status;
  }
  return index.CheckCovers(flat_size);
}

TEST(StatePieces, MustCoverTheSpaceOnce) {
  EXPECT_TRUE(Covers({}, 10).ok());  // no state at all: weights only
  EXPECT_TRUE(Covers({{0, 10}}, 10).ok());
  EXPECT_TRUE(Covers({{4, 10}, {0, 4}, {4, 4}, {10, 10}, {0, 0}}, 10).ok());
  EXPECT_FALSE(Covers({{0, 9}}, 10).ok());
  EXPECT_FALSE(Covers({{1, 10}}, 10).ok());
  EXPECT_FALSE(Covers({{0, 11}}, 10).ok());
  EXPECT_FALSE(Covers({{0, 4}, {5, 10}}, 10).ok());
  EXPECT_FALSE(Covers({{0, 5}, {4, 10}}, 10).ok());
  EXPECT_FALSE(Covers({{0, 10}, {0, 10}}, 10).ok());
  EXPECT_FALSE(Covers({{0, 10}, {3, 3}}, 10).ok());
  StateIndex index;
  EXPECT_FALSE(index.Add("s.0-4", DType::kBF16, {4}, 0).ok());
  EXPECT_FALSE(index.Add("s.0-4", DType::kF32, {5}, 0).ok());
  EXPECT_FALSE(index.Add("s.0-4", DType::kF32, {2, 2}, 0).ok());
}

}  // namespace
}  // namespace pando
