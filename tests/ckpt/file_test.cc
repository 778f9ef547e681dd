#include "ckpt/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <csignal>

#include "ckpt/atomic_file.h"
#include "ckpt/byte_source.h"
#include "ckpt/checksum.h"
#include "tests/ckpt/temp_folder.h"

namespace pando {
namespace {

TEST(AtomicFile, ReplacesAtOnceAndLeavesNothingBehind) {
  const TempFolder folder;
  const std::string path = folder.File("a.txt");
  WriteBytes(path, "old");
  {
    auto file = AtomicFile::Create(path);
    ASSERT_OK(file);
    ASSERT_OK(file->out().Append(BytesOf("new")));
    EXPECT_EQ(ReadBytes(path), "old");
  }
  EXPECT_EQ(ReadBytes(path), "old");  // not committed
  EXPECT_EQ(NamesIn(folder.path()).size(), 1u);
  ASSERT_OK(WriteFileAtomically(path, "new"));
  EXPECT_EQ(ReadBytes(path), "new");
  EXPECT_EQ(NamesIn(folder.path()).size(), 1u);
}

TEST(AtomicFile, NamesTheProblem) {
  const TempFolder folder;
  const absl::Status missing = WriteFileAtomically(folder.File("no/such"), "x");
  EXPECT_TRUE(absl::IsNotFound(missing)) << missing;
  mkdir(folder.File("taken").c_str(), 0700);
  const absl::Status taken = WriteFileAtomically(folder.File("taken"), "x");
  EXPECT_FALSE(taken.ok());
  EXPECT_EQ(NamesIn(folder.path()).size(), 1u);
  const absl::Status full = ErrnoStatus(ENOSPC, "write", "f");
  EXPECT_TRUE(absl::IsResourceExhausted(full));
  EXPECT_EQ(full.message(),
            "f: cannot write: No space left on device; free some space or choose a folder on "
            "another disk");
}

TEST(AtomicFile, RecognisesItsTemporaryNames) {
  std::string name;
  EXPECT_TRUE(ParseTemporaryName(TemporaryName("step-00000001"), &name));
  EXPECT_EQ(name, "step-00000001");
  EXPECT_TRUE(ParseTemporaryName(".a.tmp.tmp-12-0123456789abcdef", &name));
  EXPECT_EQ(name, "a.tmp");
  for (const char* other :
       {"", ".", "a", ".tmp-12-0123456789abcdef", "a.tmp-12-0123456789abcdef",
        ".a.tmp-12-0123456789abcde", ".a.tmp-12-0123456789ABCDEF", ".a.tmp--0123456789abcdef",
        ".a.tmp-1x-0123456789abcdef", ".a.tmp-12-0123456789abcdef0", ".a.tmp"}) {
    EXPECT_FALSE(ParseTemporaryName(other, &name)) << other;
  }
}

TEST(File, ShortFileIsDataLoss) {
  const TempFolder folder;
  WriteBytes(folder.File("f"), "12345");
  const auto file = File::OpenForReading(folder.File("f"));
  ASSERT_OK(file);
  std::vector<uint8_t> out(4);
  EXPECT_OK(file->ReadAt(1, absl::MakeSpan(out)));
  EXPECT_EQ(out[3], '5');
  EXPECT_TRUE(absl::IsDataLoss(file->ReadAt(2, absl::MakeSpan(out))));
}

/// The largest size of a file that this process may write, for a scope.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_;
};

TEST(File, AppendsALineOrNothing) {
  const TempFolder folder;
  const std::string path = folder.File("log");
  EXPECT_TRUE(absl::IsNotFound(File::OpenForAppending(path).status()));
  WriteBytes(path, "one\n");
  auto file = File::OpenForAppending(path);
  ASSERT_OK(file);
  {
    const FileSizeLimit limit(10);  // in the middle of the third line
    ASSERT_OK(file->AppendOrNothing(BytesOf("two\n")));
    EXPECT_TRUE(absl::IsResourceExhausted(file->AppendOrNothing(BytesOf("three\n"))));
    EXPECT_EQ(ReadBytes(path), "one\ntwo\n");
  }
  ASSERT_OK(file->AppendOrNothing(BytesOf("three\n")));
  EXPECT_EQ(ReadBytes(path), "one\ntwo\nthree\n");
}

TEST(File, PathsComeApartAndTogether) {
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(ParentFolder("a/b"), "a");
  EXPECT_EQ(ParentFolder("/b"), "/");
  EXPECT_EQ(ParentFolder("b"), ".");
  EXPECT_EQ(BaseName("a/b"), "b");
  EXPECT_EQ(BaseName("b"), "b");
}

// Published values of XXH3-64, seed 0: the empty input, from the xxHash specification's test
// vectors.
TEST(Checksum, IsXxh3) {
  EXPECT_EQ(Checksum64({}), 0x2D06800538D394C2ull);
  EXPECT_EQ(ChecksumToHex(0x2D06800538D394C2ull), "2d06800538d394c2");
  uint64_t checksum = 0;
  EXPECT_TRUE(ChecksumFromHex("2d06800538d394c2", &checksum));
  EXPECT_EQ(checksum, 0x2D06800538D394C2ull);
  EXPECT_FALSE(ChecksumFromHex("2d06800538d394c", &checksum));
  EXPECT_FALSE(ChecksumFromHex("2D06800538d394c2", &checksum));
}

TEST(Checksum, DoesNotDependOnThePieces) {
  std::vector<uint8_t> bytes(1000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * i);
  for (const size_t piece : {1u, 7u, 100u, 999u, 1000u}) {
    DigestBuilder builder(100);
    for (size_t i = 0; i < bytes.size(); i += piece) {
      builder.Update(absl::MakeConstSpan(bytes).subspan(i, piece));
    }
    const FileDigest digest = builder.Finish();
    EXPECT_EQ(digest.size, 1000);
    ASSERT_EQ(digest.chunks.size(), 10u);
    EXPECT_EQ(digest.chunks[9], Checksum64(absl::MakeConstSpan(bytes).subspan(900)));
    EXPECT_EQ(digest.whole, WholeChecksum(digest));
  }
}

class VerifiedSource : public ::testing::Test {
 protected:
  VerifiedSource() : path_(folder_.File("f")) {
    for (int i = 0; i < 250; ++i) content_ += static_cast<char>(i);
    WriteBytes(path_, content_);
    DigestBuilder builder(100);
    builder.Update(BytesOf(content_));
    digest_ = builder.Finish();
  }

  const TempFolder folder_;
  const std::string path_;
  std::string content_;
  FileDigest digest_;
};

TEST_F(VerifiedSource, ReadsAnyRange) {
  auto source = OpenVerified(path_, digest_);
  ASSERT_OK(source);
  for (int64_t begin = 0; begin <= 250; begin += 10) {
    for (int64_t end = begin; end <= 250; end += 10) {
      std::string out(static_cast<size_t>(end - begin), '\0');
      ASSERT_OK((*source)->ReadAt(begin, {reinterpret_cast<uint8_t*>(out.data()), out.size()}));
      ASSERT_EQ(out, content_.substr(static_cast<size_t>(begin), out.size()));
    }
  }
  std::vector<uint8_t> out(2);
  EXPECT_TRUE(absl::IsOutOfRange((*source)->ReadAt(249, absl::MakeSpan(out))));
  EXPECT_TRUE(absl::IsOutOfRange((*source)->ReadAt(-1, absl::MakeSpan(out))));
  EXPECT_OK(ReadThrough(source->get()));
}

TEST_F(VerifiedSource, DamageIsSeenInItsChunkOnly) {
  content_[120] ^= 1;
  WriteBytes(path_, content_);
  auto source = OpenVerified(path_, digest_);
  ASSERT_OK(source);
  std::vector<uint8_t> out(1);
  EXPECT_OK((*source)->ReadAt(99, absl::MakeSpan(out)));
  EXPECT_OK((*source)->ReadAt(200, absl::MakeSpan(out)));
  EXPECT_TRUE(absl::IsDataLoss((*source)->ReadAt(100, absl::MakeSpan(out))));
  EXPECT_TRUE(absl::IsDataLoss((*source)->ReadAt(199, absl::MakeSpan(out))));
  EXPECT_TRUE(absl::IsDataLoss(ReadThrough(source->get())));
}

TEST_F(VerifiedSource, ContradictoryDigestsAreRefused) {
  for (int field = 0; field < 4; ++field) {
    FileDigest wrong = digest_;
    if (field == 0) wrong.size += 1;
    if (field == 1) wrong.chunk_bytes = 0;
    if (field == 2) wrong.chunks.pop_back();
    if (field == 3) wrong.chunks[0] ^= 1;
    EXPECT_TRUE(absl::IsDataLoss(OpenVerified(path_, wrong).status())) << field;
  }
}

}  // namespace
}  // namespace pando
