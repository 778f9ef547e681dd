// The twins of the PTX wrappers, against plain products of matrices whose elements are laid into
// registers by the PTX ISA's tables, read the other way: which lane and register has an element.
#include "engine/cuda/ptx.h"

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "engine/cuda/launch.h"
#include "tests/samples.h"

namespace pando {
namespace {

/// An element's place in a fragment.
struct Place {
  int64_t lane, reg, half;
};
/// Of A [16 x 16], B [16 x 8] and D [16 x 8] (one element a register).
Place PlaceInA(int64_t row, int64_t column) {
  return {row % 8 * 4 + column % 8 / 2, row / 8 + 2 * (column / 8), column % 2};
}
Place PlaceInB(int64_t row, int64_t column) { return {column * 4 + row % 8 / 2, row / 8, row % 2}; }
Place PlaceInD(int64_t row, int64_t column) {
  return {row % 8 * 4 + column / 2, row / 8 * 2 + column % 2, 0};
}

class Ptx : public testing::Test {
 protected:
  Ptx() { CheckCuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream"); }
  ~Ptx() override {
    (void)cudaStreamDestroy(stream_);
    for (void* p : memory_) (void)cudaFree(p);
  }

  template <typename T>
  T* Device(const std::vector<T>& values) {
    void* p = nullptr;
    CheckCuda(cudaMalloc(&p, values.size() * sizeof(T)), "memory");
    memory_.push_back(p);
    CheckCuda(cudaMemcpy(p, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
              "copying");
    return static_cast<T*>(p);
  }
  template <typename T>
  std::vector<T> Host(const T* p, size_t n) {
    std::vector<T> values(n);
    CheckCuda(cudaMemcpy(values.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost), "copying");
    return values;
  }
  /// One warp.
  template <typename Kernel, typename... Args>
  void Run(Kernel kernel, Args... args) {
    Launch(kernel, dim3(1), 32, 4096, stream_, args...);
    CheckCuda(cudaStreamSynchronize(stream_), "running");
  }

  template <typename T>
  void CheckMma(int depth);

  cudaStream_t stream_ = nullptr;
  std::vector<void*> memory_;
};

template <typename T, int kDepth>
__global__ void Mma(const uint32_t* a, const uint32_t* b, float* d) {
  const int64_t lane = threadIdx.x;
  float mine[4];
  for (int i = 0; i < 4; ++i) mine[i] = d[4 * lane + i];
  const uint32_t left[4] = {a[4 * lane], a[4 * lane + 1], a[4 * lane + 2], a[4 * lane + 3]};
  if constexpr (kDepth == 8) {
    MmaM16N8K8(mine, left[0], left[1], b[2 * lane]);
  } else {
    MmaM16N8K16<T>(mine, left, b[2 * lane], b[2 * lane + 1]);
  }
  for (int i = 0; i < 4; ++i) d[4 * lane + i] = mine[i];
}

template <typename T>
void Ptx::CheckMma(int depth) {
  const std::vector<T> a = Samples<T>(256), b = Samples<T>(128, 500);
  const std::vector<float> c = Samples<float>(128, 900);
  std::vector<uint32_t> left(128), right(64);
  std::vector<float> sums(128);
  for (int64_t i = 0; i < 16; ++i) {
    for (int64_t j = 0; j < 16; ++j) {
      const Place p = PlaceInA(i, j);
      left[p.lane * 4 + p.reg] |= static_cast<uint32_t>(a[i * 16 + j].bits) << (16 * p.half);
    }
    for (int64_t j = 0; j < 8; ++j) {
      const Place p = PlaceInB(i, j);
      right[p.lane * 2 + p.reg] |= static_cast<uint32_t>(b[i * 8 + j].bits) << (16 * p.half);
      const Place q = PlaceInD(i, j);
      sums[q.lane * 4 + q.reg] = c[i * 8 + j];
    }
  }
  float* const d = Device(sums);
  Run(depth == 8 ? Mma<T, 8> : Mma<T, 16>, Device(left), Device(right), d);
  const std::vector<float> got = Host(d, sums.size());
  for (int64_t i = 0; i < 16; ++i) {
    for (int64_t j = 0; j < 8; ++j) {
      double want = c[i * 8 + j];
      for (int64_t k = 0; k < depth; ++k) {
        want += static_cast<double>(ToFloat(a[i * 16 + k])) * ToFloat(b[k * 8 + j]);
      }
      const Place p = PlaceInD(i, j);
      // Every of 16 additions rounds, at a magnitude of at most 17.
      EXPECT_NEAR(got[p.lane * 4 + p.reg], want, 16 * 17 * 0x1p-24) << i << ", " << j;
    }
  }
}

TEST_F(Ptx, MmaOfBf16) { CheckMma<BFloat16>(16); }
TEST_F(Ptx, MmaOfF16) { CheckMma<Float16>(16); }
TEST_F(Ptx, MmaOfF16OverHalfTheDepth) { CheckMma<Float16>(8); }

constexpr int64_t kMatrices = 4;

template <bool kTransposed, int kCount>
__global__ void Load(const uint16_t* matrices, uint32_t* fragments) {
  auto* const shared = SharedMemory<uint16_t>();
  for (unsigned i = threadIdx.x; i < kMatrices * 64; i += 32) shared[i] = matrices[i];
  __syncwarp();
  uint32_t r[kCount];
  // Rows of the matrices asked for; other lanes' addresses are not used, so may be anything.
  const int64_t row = threadIdx.x;
  LoadMatrix<kTransposed>(r, row < int64_t{8} * kCount ? shared + 8 * row : nullptr);
  for (int64_t m = 0; m < kCount; ++m) fragments[m * 32 + row] = r[m];
}

TEST_F(Ptx, LoadMatrix) {
  std::vector<uint16_t> matrices(kMatrices * 64);
  for (size_t i = 0; i < matrices.size(); ++i) matrices[i] = static_cast<uint16_t>(1000 + i);
  const uint16_t* const in = Device(matrices);
  uint32_t* const out = Device(std::vector<uint32_t>(kMatrices * 32));
  const auto check = [&](int count, bool transposed, auto kernel) {
    Run(kernel, in, out);
    const std::vector<uint32_t> got = Host(out, static_cast<size_t>(count) * 32);
    for (int64_t m = 0; m < count; ++m) {
      for (int64_t row = 0; row < 8; ++row) {
        for (int64_t column = 0; column < 8; ++column) {
          // A fragment has rows over lanes' fours and columns within; transposed, the other way.
          const int64_t over = transposed ? column : row, within = transposed ? row : column;
          const uint32_t pair = got[m * 32 + over * 4 + within / 2];
          EXPECT_EQ(pair >> (16 * (within % 2)) & 0xFFFFu, 1000u + m * 64 + row * 8 + column)
              << count << " matrices, transposed " << transposed << ", matrix " << m;
        }
      }
    }
  };
  check(1, false, Load<false, 1>);
  check(2, false, Load<false, 2>);
  check(4, false, Load<false, 4>);
  check(1, true, Load<true, 1>);
  check(2, true, Load<true, 2>);
  check(4, true, Load<true, 4>);
}

// Two groups of copies, looked at before and after each is waited for.
__global__ void Copy(const float* from, float* to) {
  const int64_t lane = threadIdx.x;
  auto* const shared = SharedMemory<float>() + 8 * lane;
  CopyAsync16(shared, from + 4 * lane, true);
  CommitCopies();
  CopyAsync16(shared + 4, from + 4 * lane, lane % 2 == 0);
  CommitCopies();
  float* const out = to + 24 * lane;
  for (int i = 0; i < 8; ++i) out[i] = shared[i];
  WaitForCopies<1>();
  for (int i = 0; i < 8; ++i) out[8 + i] = shared[i];
  WaitForCopies<0>();
  for (int i = 0; i < 8; ++i) out[16 + i] = shared[i];
}

TEST_F(Ptx, CopiesAreThereWhenWaitedForAndNotBefore) {
  const std::vector<float> from = Samples<float>(128);
  float* const to = Device(std::vector<float>(768));
  Run(Copy, Device(from), to);
  const std::vector<float> got = Host(to, 768);
  for (int64_t lane = 0; lane < 32; ++lane) {
    for (int64_t i = 0; i < 4; ++i) {
      const float* const at = &got[24 * lane + i];
      const float want = from[4 * lane + i];
      EXPECT_TRUE(std::isnan(at[0]) && std::isnan(at[4]) && std::isnan(at[12]));
      EXPECT_EQ(at[8], want);
      EXPECT_EQ(at[16], want);
      EXPECT_EQ(at[20], lane % 2 == 0 ? want : 0);
    }
  }
}

TEST_F(Ptx, PairsAndPowersOfTwo) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(PackPair<BFloat16>(1, -2), 0xC0003F80u);
  EXPECT_EQ(PackPair<Float16>(1, -2), 0xC0003C00u);
  EXPECT_EQ(PackPair<Float16>(1 + 0x1p-11f, 1 + 3 * 0x1p-11f), 0x3C023C00u);  // ties to even
  EXPECT_EQ(FastExp2(-3), 0.125f);
  EXPECT_EQ(FastExp2(-inf), 0);
  EXPECT_EQ(FastExp2(-127), 0);
}

}  // namespace
}  // namespace pando
