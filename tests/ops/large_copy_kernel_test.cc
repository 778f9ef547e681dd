// Copies past 2^31 elements, where 32-bit indices overflow: at the best instruction-set level only,
// since each writes 4 GiB. Skipped, saying so, where memory is short.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <fstream>
#include <string>
#include <vector>

#include "ops/cpu/basic_kernels_cpu.h"
#include "ops/strided.h"

namespace pando {
namespace {

// Bytes that the system could still give us.
int64_t AvailableMemory() {
  std::ifstream info("/proc/meminfo");
  std::string word;
  while (info >> word) {
    if (word == "MemAvailable:") {
      int64_t kib = 0;
      info >> kib;
      return kib * 1024;
    }
  }
  return 0;
}

// Zeros that take memory only where they are written.
class SparseArray {
 public:
  explicit SparseArray(int64_t n)
      : bytes_(static_cast<size_t>(n) * sizeof(uint16_t)),
        data_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~SparseArray() { munmap(data_, bytes_); }
  SparseArray(const SparseArray&) = delete;
  SparseArray& operator=(const SparseArray&) = delete;
  uint16_t* data() { return static_cast<uint16_t*>(data_); }
  bool valid() const { return data_ != MAP_FAILED; }

 private:
  size_t bytes_;
  void* data_;
};

// One y for all tests: it is the writing of fresh pages that takes long.
class LargeCopyTest : public testing::Test {
 protected:
  static constexpr int64_t kCols = 1 << 16;
  static constexpr int64_t kRows = (1 << 15) + 1;  // kRows * kCols > 2^31

  static void SetUpTestSuite() { y_ = new SparseArray(kRows * kCols); }
  static void TearDownTestSuite() { delete y_; }
  void SetUp() override {
    ASSERT_TRUE(y_->valid());
    if (AvailableMemory() < (int64_t{11} << 29)) {
      GTEST_SKIP() << "needs 5.5 GiB of free memory";
    }
  }
  static uint16_t* y() { return y_->data(); }

 private:
  static SparseArray* y_;
};
SparseArray* LargeCopyTest::y_ = nullptr;

std::vector<uint16_t> Pattern(int64_t n) {
  std::vector<uint16_t> x(n);
  for (int64_t i = 0; i < n; ++i) x[i] = static_cast<uint16_t>(i * 40503 >> 3);
  return x;
}

TEST_F(LargeCopyTest, RowRepeated) {
  const std::vector<uint16_t> row = Pattern(kCols);
  CpuCopyKernels().copy({DType::kBF16, y(), row.data(), {2, {kRows, kCols}, {{kCols, 1}, {0, 1}}}},
                        nullptr);
  for (int64_t r = 0; r < kRows; ++r) {
    ASSERT_EQ(__builtin_memcmp(y() + r * kCols, row.data(), kCols * 2), 0) << r;
  }
}

TEST_F(LargeCopyTest, Transposed) {
  // Columns that overlap: column c of y^T starts at element 2 c of x.
  const std::vector<uint16_t> x = Pattern(kRows + 2 * kCols);
  CpuCopyKernels().copy({DType::kBF16, y(), x.data(), {2, {kRows, kCols}, {{kCols, 1}, {1, 2}}}},
                        nullptr);
  std::vector<uint16_t> want(kCols);
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kCols; ++c) want[c] = x[2 * c + r];
    ASSERT_EQ(__builtin_memcmp(y() + r * kCols, want.data(), kCols * 2), 0) << r;
  }
}

TEST_F(LargeCopyTest, SliceAndConcatAtTheFarEnd) {
  // The last 3 columns of [kRows, kCols], of which most are never touched, and back to the first.
  SparseArray x(kRows * kCols);
  ASSERT_TRUE(x.valid());
  const std::vector<uint16_t> want = Pattern(48);
  constexpr int64_t kPart = kRows - 16;
  for (int64_t r = 0; r < 16; ++r) {
    for (int64_t c = 0; c < 3; ++c) x.data()[(kPart + r) * kCols + kCols - 3 + c] = want[r * 3 + c];
  }
  const SliceIndex rows = MakeSliceIndex({kRows, kCols}, 0, kPart, 16);
  const SliceIndex cols = MakeSliceIndex({16, kCols}, 1, kCols - 3, 3);
  std::vector<uint16_t> part(48);
  CpuCopyKernels().copy(
      {DType::kBF16, part.data(), x.data() + rows.offset + cols.offset, cols.index}, nullptr);
  EXPECT_EQ(part, want);
  const SliceIndex first = MakeSliceIndex({16, kCols}, 1, 0, 3);
  CpuCopyKernels().copy({DType::kBF16, x.data() + rows.offset, part.data(), Swapped(first.index)},
                        nullptr);
  for (int64_t r = 0; r < 16; ++r) {
    for (int64_t c = 0; c < 3; ++c) EXPECT_EQ(x.data()[(kPart + r) * kCols + c], want[r * 3 + c]);
  }
}

}  // namespace
}  // namespace pando
