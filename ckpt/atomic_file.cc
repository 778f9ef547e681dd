#include "ckpt/atomic_file.h"

#include <unistd.h>

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "engine/status.h"

namespace pando {
namespace {

constexpr absl::string_view kTemporaryMark = ".tmp";

// Hashed and written in pieces that stay in the processor's cache between the two.
constexpr size_t kPieceBytes = size_t{512} << 10;

}  // namespace

absl::StatusOr<OutputFile> OutputFile::Create(const std::string& path, int64_t chunk_bytes) {
  PANDO_ASSIGN_OR_RETURN(File file, File::CreateNew(path));
  return OutputFile(std::move(file), chunk_bytes);
}

absl::Status OutputFile::Append(absl::Span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const auto piece = bytes.subspan(0, kPieceBytes);
    digest_.Update(piece);
    PANDO_RETURN_IF_ERROR(file_.Append(piece));
    bytes.remove_prefix(piece.size());
  }
  return absl::OkStatus();
}

absl::StatusOr<FileDigest> OutputFile::Finish() {
  PANDO_RETURN_IF_ERROR(file_.Sync());
  return digest_.Finish();
}

absl::StatusOr<AtomicFile> AtomicFile::Create(const std::string& path) {
  std::string temporary = JoinPath(ParentFolder(path), TemporaryName(BaseName(path)));
  PANDO_ASSIGN_OR_RETURN(OutputFile out, OutputFile::Create(temporary));
  return AtomicFile(path, std::move(temporary), std::move(out));
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

absl::StatusOr<FileDigest> AtomicFile::Commit() {
  PANDO_ASSIGN_OR_RETURN(FileDigest digest, out_.Finish());
  PANDO_RETURN_IF_ERROR(Rename(temporary_, path_));
  temporary_.clear();
  PANDO_RETURN_IF_ERROR(SyncFolder(ParentFolder(path_)));
  return digest;
}

absl::Status WriteFileAtomically(const std::string& path, absl::string_view content) {
  PANDO_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  PANDO_RETURN_IF_ERROR(file.out().Append(BytesOf(content)));
  return file.Commit().status();
}

std::string TemporaryName(absl::string_view name) {
  return absl::StrCat(".", name, kTemporaryMark, UniqueSuffix());
}

bool ParseTemporaryName(absl::string_view temporary, std::string* name) {
  const size_t mark = temporary.rfind(kTemporaryMark);
  if (mark == absl::string_view::npos || mark < 2 || temporary[0] != '.') return false;
  if (!IsUniqueSuffix(temporary.substr(mark + kTemporaryMark.size()))) return false;
  *name = std::string(temporary.substr(1, mark - 1));
  return true;
}

std::string UniqueSuffix() {
  std::random_device random;
  const uint64_t word = static_cast<uint64_t>(random()) << 32 | random();
  return absl::StrCat("-", getpid(), "-", ChecksumToHex(word));
}

bool IsUniqueSuffix(absl::string_view text) {
  if (text.empty() || text[0] != '-') return false;
  text.remove_prefix(1);
  const size_t dash = text.find('-');
  if (dash == absl::string_view::npos || dash == 0) return false;
  const absl::string_view pid = text.substr(0, dash);
  uint64_t word;
  return std::all_of(pid.begin(), pid.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
         ChecksumFromHex(text.substr(dash + 1), &word);
}

}  // namespace pando
