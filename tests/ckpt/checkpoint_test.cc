#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ckpt/checkpoint_folder.h"
#include "ckpt/checkpoint_reader.h"
#include "ckpt/checkpoint_writer.h"
#include "tests/ckpt/sample_checkpoint.h"
#include "tests/ckpt/temp_folder.h"

namespace pando {
namespace {

class Checkpoint : public ::testing::Test {
 protected:
  Checkpoint() : run_(*RunFolder::Prepare(folder_.File("run"), 0)) {}

  std::string Path(int64_t step) const { return JoinPath(run_.path(), StepFolderName(step)); }
  std::vector<int64_t> Steps() const { return *ListSteps(run_.path()); }

  // All names but the run's own files.
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const std::string& name : NamesIn(run_.path())) {
      if (name != kRunMarkerFile && name != kRunLockFile) names.push_back(name);
    }
    return names;
  }

  const TempFolder folder_;
  RunFolder run_;
};

TEST_F(Checkpoint, RoundTrips) {
  ASSERT_OK(SaveSample(run_, 7));
  EXPECT_EQ(Names(), std::vector<std::string>{"step-00000007"});
  EXPECT_OK(Verify(Path(7)));
  EXPECT_OK(CheckSample(Path(7), 7));
  EXPECT_FALSE(CheckSample(Path(7), 8).ok());  // the check itself can fail
}

TEST_F(Checkpoint, ReadsAnyIntervalWhateverTheFilesHold) {
  ASSERT_OK(SaveSample(run_, 3));
  auto reader = CheckpointReader::Open(Path(3));
  ASSERT_OK(reader);
  EXPECT_EQ(reader->States(), (std::vector<std::string>{"exp_avg", "exp_avg_sq", "master"}));
  for (int64_t begin = 0; begin <= kSampleFlatSize; begin += 64) {
    for (int64_t end = begin; end <= kSampleFlatSize; end += 64) {
      std::vector<float> out(static_cast<size_t>(end - begin));
      ASSERT_OK(reader->ReadState("exp_avg_sq", begin, absl::MakeSpan(out)));
      for (int64_t i = begin; i < end; ++i) {
        ASSERT_EQ(out[static_cast<size_t>(i - begin)], SampleValue("exp_avg_sq", 3, i));
      }
    }
  }
  std::vector<float> out(4);
  EXPECT_OK(reader->ReadParameterState("master", "h.0.b", 6, absl::MakeSpan(out)));
  EXPECT_EQ(out[0], SampleValue("master", 3, 384 + 6));
  EXPECT_TRUE(
      absl::IsOutOfRange(reader->ReadParameterState("master", "h.0.b", 7, absl::MakeSpan(out))));
  EXPECT_TRUE(
      absl::IsNotFound(reader->ReadParameterState("master", "h.9.b", 0, absl::MakeSpan(out))));
  EXPECT_TRUE(absl::IsNotFound(reader->ReadState("momentum", 0, absl::MakeSpan(out))));
  EXPECT_TRUE(
      absl::IsOutOfRange(reader->ReadState("master", kSampleFlatSize - 3, absl::MakeSpan(out))));
  EXPECT_TRUE(absl::IsNotFound(reader->ReadText("none.json").status()));
  EXPECT_TRUE(absl::IsNotFound(reader->ReadText(kWeightsFile).status()));
}

TEST_F(Checkpoint, UncommittedLeavesNothing) {
  {
    auto writer = CheckpointWriter::Begin(run_, SampleInfo(1));
    ASSERT_OK(writer);
    ASSERT_OK(AddSampleFiles(&*writer, 1));
    EXPECT_TRUE(Steps().empty());
    EXPECT_EQ(Names().size(), 1u);
  }
  EXPECT_TRUE(Names().empty());
}

TEST_F(Checkpoint, RefusesHolesAndBadNames) {
  auto writer = CheckpointWriter::Begin(run_, SampleInfo(1));
  ASSERT_OK(writer);
  const TensorSource zeros = [](const TensorDecl&, int64_t, int64_t count, void* out) {
    std::fill_n(static_cast<float*>(out), count, 0.0f);
    return absl::OkStatus();
  };
  EXPECT_OK(writer->AddState("s.safetensors", {StateTensorDecl("master", 0, 100)}, zeros));
  EXPECT_TRUE(absl::IsFailedPrecondition(writer->Commit().status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      writer->AddState("t.safetensors", {{"not.a.piece", DType::kF32, {1}}}, zeros)));
  EXPECT_TRUE(absl::IsInvalidArgument(writer->AddText("../a.json", "")));
  EXPECT_TRUE(absl::IsInvalidArgument(writer->AddText(kManifestFile, "")));
  EXPECT_TRUE(absl::IsInvalidArgument(writer->AddWeights("weights.json", {}, {}, zeros)));
  EXPECT_OK(writer->AddText("a.json", ""));
  EXPECT_TRUE(absl::IsAlreadyExists(writer->AddText("a.json", "")));
  EXPECT_TRUE(absl::IsFailedPrecondition(writer->Commit().status()));
  EXPECT_TRUE(Steps().empty());
  CheckpointInfo bad = SampleInfo(1);
  bad.layout[1].offset = 0;
  EXPECT_TRUE(absl::IsInvalidArgument(CheckpointWriter::Begin(run_, bad).status()));
}

TEST_F(Checkpoint, WeightsAloneAreACheckpoint) {
  auto writer = CheckpointWriter::Begin(run_, SampleInfo(1));
  ASSERT_OK(writer);
  ASSERT_OK(writer->AddText("config.json", "{}"));
  ASSERT_OK(writer->Commit());
  EXPECT_OK(Verify(Path(1)));
}

TEST_F(Checkpoint, SameStepIsReplaced) {
  ASSERT_OK(SaveSample(run_, 5));
  auto writer = CheckpointWriter::Begin(run_, SampleInfo(5));
  ASSERT_OK(writer);
  ASSERT_OK(writer->AddText("config.json", "second"));
  ASSERT_OK(writer->Commit());
  EXPECT_TRUE(absl::IsFailedPrecondition(writer->Commit().status()));
  EXPECT_EQ(Names(), std::vector<std::string>{"step-00000005"});
  EXPECT_EQ(*CheckpointReader::Open(Path(5))->ReadText("config.json"), "second");
}

TEST_F(Checkpoint, SameStepIsReplacedWithoutExchangeToo) {
  ASSERT_OK(SaveSample(run_, 5));
  ASSERT_OK(SaveSample(run_, 6));
  // Step 6 published again as 5: the manifest tells which one lies there.
  ASSERT_OK(PublishCheckpoint(run_.path(), Path(6), 5, /*may_exchange=*/false));
  EXPECT_EQ(Names(), std::vector<std::string>{"step-00000005"});
  std::filesystem::rename(Path(5), Path(6));
  EXPECT_OK(CheckSample(Path(6), 6));
}

TEST_F(Checkpoint, ForeignFilesInAReplacedOneAreKept) {
  ASSERT_OK(SaveSample(run_, 5));
  WriteBytes(JoinPath(Path(5), "my notes"), "precious");
  ASSERT_OK(SaveSample(run_, 5));
  EXPECT_OK(CheckSample(Path(5), 5));
  const auto names = Names();
  ASSERT_EQ(names.size(), 2u);
  EXPECT_TRUE(absl::StartsWith(names[1], "step-00000005.old-")) << names[1];
  EXPECT_EQ(ReadBytes(JoinPath(JoinPath(run_.path(), names[1]), "my notes")), "precious");
  EXPECT_EQ(Steps(), std::vector<int64_t>{5});
}

TEST_F(Checkpoint, KeepsTheNewest) {
  std::vector<std::string> notes;
  for (int64_t step = 1; step <= 5; ++step) {
    ASSERT_OK(SaveSample(run_, step * 10));
    ASSERT_OK(KeepNewest(run_, step * 10, 2, &notes));
  }
  EXPECT_EQ(Steps(), (std::vector<int64_t>{40, 50}));
  EXPECT_EQ(notes.size(), 3u);
  ASSERT_OK(KeepNewest(run_, 50, 0, &notes));  // never less than one
  EXPECT_EQ(Names(), std::vector<std::string>{"step-00000050"});
}

TEST_F(Checkpoint, DamagedOnesDoNotCountAsKept) {
  std::vector<std::string> notes;
  for (const int64_t step : {1, 2, 3}) ASSERT_OK(SaveSample(run_, step));
  std::filesystem::resize_file(JoinPath(Path(2), kOptimizerFile), 10);
  ASSERT_OK(KeepNewest(run_, 3, 2, &notes));
  EXPECT_EQ(Steps(), (std::vector<int64_t>{1, 2, 3}));
  // Foreign files keep a checkpoint from being deleted, and it says so.
  ASSERT_OK(SaveSample(run_, 4));
  WriteBytes(JoinPath(Path(1), "mine"), "");
  ASSERT_OK(KeepNewest(run_, 4, 2, &notes));
  EXPECT_EQ(Steps(), (std::vector<int64_t>{1, 2, 3, 4}));
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(absl::StrContains(notes[0], "mine")) << notes[0];
}

TEST_F(Checkpoint, LaterOnesAreAnotherHistory) {
  std::vector<std::string> notes;
  for (const int64_t step : {1, 2, 30, 40}) ASSERT_OK(SaveSample(run_, step));
  // After going back to 2, a new step 3: neither 3 nor 2 gives way to 30 and 40.
  ASSERT_OK(SaveSample(run_, 3));
  ASSERT_OK(KeepNewest(run_, 3, 2, &notes));
  EXPECT_EQ(Steps(), (std::vector<int64_t>{2, 3, 30, 40}));
  ASSERT_OK(DeleteLater(run_, 3, &notes));
  EXPECT_EQ(Steps(), (std::vector<int64_t>{2, 3}));
}

TEST_F(Checkpoint, FindsTheNewestValidOneAndSaysWhatItSkipped) {
  auto found = FindLatest(run_.path());
  ASSERT_OK(found);
  EXPECT_TRUE(found->path.empty());
  for (int64_t step = 1; step <= 7; ++step) ASSERT_OK(SaveSample(run_, step));
  std::filesystem::remove(JoinPath(Path(7), kManifestFile));
  std::filesystem::resize_file(JoinPath(Path(6), kOptimizerFile), 0);  // a zero-byte shard
  std::string weights = ReadBytes(JoinPath(Path(5), kWeightsFile));
  weights.back() ^= 1;
  WriteBytes(JoinPath(Path(5), kWeightsFile), weights);
  WriteBytes(JoinPath(Path(4), kManifestFile), "{}");
  std::filesystem::remove_all(Path(3));
  std::filesystem::copy(Path(1), Path(3));  // holds step 1
  found = FindLatest(run_.path());
  ASSERT_OK(found);
  EXPECT_EQ(found->path, Path(2));
  EXPECT_EQ(found->manifest.info.data_step, 2);
  ASSERT_EQ(found->skipped.size(), 5u);
  const char* const reasons[] = {"no manifest.json", "has 0 bytes", "wrong checksum",
                                 "does not end with its right checksum", "is of step 1"};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(found->skipped[i].path, Path(7 - static_cast<int64_t>(i)));
    EXPECT_TRUE(absl::StrContains(found->skipped[i].reason, reasons[i]))
        << found->skipped[i].reason;
  }
  EXPECT_EQ(FindLatest(run_.path(), 1)->path, Path(1));
  EXPECT_TRUE(absl::IsNotFound(FindLatest(folder_.File("none")).status()));
}

TEST_F(Checkpoint, InspectTellsWhatIsThere) {
  ASSERT_OK(SaveSample(run_, 9));
  CheckpointSummary summary = Inspect(Path(9), /*verify=*/true);
  EXPECT_TRUE(summary.is_valid && summary.is_verified) << summary.reason;
  EXPECT_EQ(summary.manifest.info.data_step, 9);
  ASSERT_EQ(summary.tensors.size(), 2u + 9u);
  EXPECT_EQ(summary.tensors[0].file, kWeightsFile);
  EXPECT_EQ(summary.tensors[0].entry.name, "h.0.w");
  EXPECT_EQ(summary.tensors[0].entry.dtype_name, "BF16");
  EXPECT_EQ(summary.tensors[0].entry.end - summary.tensors[0].entry.begin, 16 * 20 * 2);
  EXPECT_FALSE(Inspect(Path(9), /*verify=*/false).is_verified);
  std::filesystem::resize_file(JoinPath(Path(9), kOptimizerFile), 100);
  summary = Inspect(Path(9), /*verify=*/false);
  EXPECT_FALSE(summary.is_valid);
  EXPECT_EQ(summary.manifest.info.data_step, 9);
  EXPECT_TRUE(absl::StrContains(summary.reason, "100 bytes")) << summary.reason;
  EXPECT_FALSE(Inspect(folder_.File("none"), true).is_valid);
}

TEST(CheckpointNames, HaveOneSpelling) {
  EXPECT_EQ(StepFolderName(1234), "step-00001234");
  EXPECT_EQ(StepFolderName(123456789012), "step-123456789012");
  int64_t step = 0;
  EXPECT_TRUE(ParseStepFolderName("step-123456789012", &step));
  EXPECT_EQ(step, 123456789012);
  for (const char* bad : {"step-1", "step-0000001x", "step-", "step-000000012", "Step-00000001",
                          "step--0000001", "step-00000001.old", "step-+0000001"}) {
    EXPECT_FALSE(ParseStepFolderName(bad, &step)) << bad;
  }
}

}  // namespace
}  // namespace pando
