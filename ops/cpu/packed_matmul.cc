// Matrix multiplication of our own, for what oneDNN lacks on this processor: f64, f16, bf16 without
// AVX512_BF16, and layouts that it has no fast path for. The arrangement is that of Goto and van de
// Geijn ("Anatomy of high-performance matrix multiplication", ACM TOMS 34(3), 2008): blocks of A
// and B are packed into strips, converted to the compute type on the way, and a kernel keeps a tile
// of C in registers. The order of every sum depends on k alone, never on threads or on the level's
// width.

#include "engine/cpu/dispatch.h"
#include "engine/cpu/parallel.h"
#include "ops/kernels/matmul.h"

namespace pando::PANDO_ISA {
namespace {

// A tile of C is kTileRows x 2 vectors. With 16 registers 6 x 2 sums fit, with 32 registers 12 x 2.
#if defined(__AVX512F__)
constexpr int64_t kVectorBytes = 64;
constexpr int64_t kTileRows = 12;
#elif defined(__AVX2__)
constexpr int64_t kVectorBytes = 32;
constexpr int64_t kTileRows = 6;
#else
constexpr int64_t kVectorBytes = 16;
constexpr int64_t kTileRows = 6;
#endif

// What is packed at once: kDepth x 2 vectors of B stay in the first-level cache, kTaskRows x kDepth
// of A in the second, kDepth x kBlockColumns of B in the third.
constexpr int64_t kDepth = 256;
constexpr int64_t kBlockRows = 960;
constexpr int64_t kBlockColumns = 2048;
// What one thread takes at a time.
constexpr int64_t kTaskRows = 96;
constexpr int64_t kTaskColumns = 512;

static_assert(kBlockRows % kTaskRows == 0 && kTaskRows % kTileRows == 0);

template <typename C>
constexpr int64_t kVectorLength = kVectorBytes / static_cast<int64_t>(sizeof(C));
template <typename C>
constexpr int64_t kTileColumns = 2 * kVectorLength<C>;

constexpr int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t RoundUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Bytes of the three parts of the scratch: strips of A, strips of B, sums of a block of C.
struct Scratch {
  int64_t a;
  int64_t b;
  int64_t sums;
};

template <typename C>
Scratch ScratchOf(const MatmulArgs& args) {
  constexpr int64_t kSize = sizeof(C);
  const int64_t rows = Min(RoundUp(args.m, kTileRows), kBlockRows);
  const int64_t columns = Min(RoundUp(args.n, kTileColumns<C>), kBlockColumns);
  const int64_t depth = Min(args.k, kDepth);
  return {.a = RoundUp(rows * depth * kSize, 64),
          .b = RoundUp(depth * columns * kSize, 64),
          .sums = args.k <= kDepth ? 0 : RoundUp(rows * columns * kSize, 64)};
}

// Element (i, p) of `count` rows (of A) or columns (of B) by `depth`, as packed strips want it.
template <typename T>
struct Source {
  const T* data;
  int64_t stride;        // from one row of A, or column of B, to the next
  int64_t depth_stride;  // along the summed dimension
};

// One strip: dst[p * kWidth + i], with zeros for the rows past `count`.
template <int64_t kWidth, typename T>
void PackStrip(const Source<T>& src, int64_t count, int64_t depth, ComputeType<T>* dst) {
  if (depth == 0) return;  // dst may be null
  if (count < kWidth) __builtin_memset(dst, 0, sizeof(*dst) * kWidth * depth);
  if (src.stride == 1) {
    for (int64_t p = 0; p < depth; ++p) {
      const T* from = src.data + p * src.depth_stride;
      ComputeType<T>* to = dst + p * kWidth;
      if (count == kWidth) {
        for (int64_t i = 0; i < kWidth; ++i) to[i] = ToFloat(from[i]);
      } else {
        for (int64_t i = 0; i < count; ++i) to[i] = ToFloat(from[i]);
      }
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const T* from = src.data + i * src.stride;
    for (int64_t p = 0; p < depth; ++p) dst[p * kWidth + i] = ToFloat(from[p * src.depth_stride]);
  }
}

template <int64_t kWidth, typename T>
void Pack(const Source<T>& src, int64_t count, int64_t depth, ComputeType<T>* dst) {
  ParallelFor((count + kWidth - 1) / kWidth, 4, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      const int64_t first = s * kWidth;
      PackStrip<kWidth>(Source<T>{src.data + first * src.stride, src.stride, src.depth_stride},
                        Min(kWidth, count - first), depth, dst + first * depth);
    }
  });
}

// tile[r][j] = sum over p of a[p][r] b[p][j], on one strip of each.
template <typename C>
void TileProduct(const C* a, const C* b, int64_t depth, C* tile) {
  typedef C Vector __attribute__((vector_size(kVectorBytes)));
  Vector sum[kTileRows][2] = {};
  for (int64_t p = 0; p < depth; ++p) {
    const Vector* b_row = reinterpret_cast<const Vector*>(b + p * kTileColumns<C>);
    const Vector b0 = b_row[0];
    const Vector b1 = b_row[1];
#pragma GCC unroll 12
    for (int64_t r = 0; r < kTileRows; ++r) {
      const C x = a[p * kTileRows + r];
      sum[r][0] += x * b0;
      sum[r][1] += x * b1;
    }
  }
  Vector* out = reinterpret_cast<Vector*>(tile);
#pragma GCC unroll 12
  for (int64_t r = 0; r < kTileRows; ++r) {
    out[2 * r] = sum[r][0];
    out[2 * r + 1] = sum[r][1];
  }
}

// Where tiles go: to the sums of the block while more depth is to come, rounded to C at the end.
template <typename T, typename Out>
struct Target {
  using C = ComputeType<T>;
  C* sums;
  int64_t sums_ld;
  Out* c;
  int64_t ldc;
  const T* bias;  // of this block's columns, or null
  bool accumulate;
  bool first;
  bool last;

  void Store(const C* tile, int64_t row, int64_t rows, int64_t column, int64_t columns) const {
    for (int64_t r = 0; r < rows; ++r) {
      const C* t = tile + r * kTileColumns<C>;
      C* s = sums + (row + r) * sums_ld + column;
      if (!last) {
        for (int64_t j = 0; j < columns; ++j) s[j] = first ? t[j] : s[j] + t[j];
        continue;
      }
      Out* out = c + (row + r) * ldc + column;
      for (int64_t j = 0; j < columns; ++j) {
        C v = first ? t[j] : s[j] + t[j];
        if (bias != nullptr) v += ToFloat(bias[column + j]);
        if (accumulate) v += ToFloat(out[j]);
        out[j] = RoundTo<Out>(v);
      }
    }
  }
};

// One block of C, one block of depth: all packed.
template <typename T, typename Out>
void BlockProduct(const ComputeType<T>* a, const ComputeType<T>* b, int64_t rows, int64_t columns,
                  int64_t depth, const Target<T, Out>& target) {
  using C = ComputeType<T>;
  const int64_t row_tasks = (rows + kTaskRows - 1) / kTaskRows;
  const int64_t column_tasks = (columns + kTaskColumns - 1) / kTaskColumns;
  ParallelFor(row_tasks * column_tasks, 1, [&](int64_t begin, int64_t end) {
    alignas(64) C tile[kTileRows * kTileColumns<C>];
    for (int64_t task = begin; task < end; ++task) {
      const int64_t row0 = task % row_tasks * kTaskRows;
      const int64_t column0 = task / row_tasks * kTaskColumns;
      const int64_t row1 = Min(rows, row0 + kTaskRows);
      const int64_t column1 = Min(columns, column0 + kTaskColumns);
      for (int64_t j = column0; j < column1; j += kTileColumns<C>) {
        for (int64_t i = row0; i < row1; i += kTileRows) {
          TileProduct<C>(a + i * depth, b + j * depth, depth, tile);
          target.Store(tile, i, Min(kTileRows, row1 - i), j, Min(kTileColumns<C>, column1 - j));
        }
      }
    }
  });
}

template <typename T, typename Out>
void Multiply(const MatmulArgs& args, const T* a, const T* b, Out* c) {
  using C = ComputeType<T>;
  const int64_t a_row = args.transpose_a ? 1 : args.lda;
  const int64_t a_depth = args.transpose_a ? args.lda : 1;
  const int64_t b_depth = args.transpose_b ? 1 : args.ldb;
  const int64_t b_column = args.transpose_b ? args.ldb : 1;
  const Scratch bytes = ScratchOf<C>(args);
  char* scratch = static_cast<char*>(args.scratch);
  C* packed_a = reinterpret_cast<C*>(scratch);
  C* packed_b = reinterpret_cast<C*>(scratch + bytes.a);
  C* sums = reinterpret_cast<C*>(scratch + bytes.a + bytes.b);
  for (int64_t i = 0; i < args.m; i += kBlockRows) {
    const int64_t rows = Min(kBlockRows, args.m - i);
    for (int64_t j = 0; j < args.n; j += kBlockColumns) {
      const int64_t columns = Min(kBlockColumns, args.n - j);
      int64_t p = 0;
      do {  // once at least: with k = 0 the product is 0
        const int64_t depth = Min(kDepth, args.k - p);
        Pack<kTileRows>(Source<T>{a + i * a_row + p * a_depth, a_row, a_depth}, rows, depth,
                        packed_a);
        Pack<kTileColumns<C>>(Source<T>{b + j * b_column + p * b_depth, b_column, b_depth}, columns,
                              depth, packed_b);
        BlockProduct(
            packed_a, packed_b, rows, columns, depth,
            Target<T, Out>{
                .sums = sums,
                .sums_ld = columns,
                .c = c + i * args.ldc + j,
                .ldc = args.ldc,
                .bias = args.bias == nullptr ? nullptr : static_cast<const T*>(args.bias) + j,
                .accumulate = args.accumulate,
                .first = p == 0,
                .last = p + depth == args.k});
        p += depth;
      } while (p < args.k);
    }
  }
}

template <typename T, typename Out>
void MultiplyBatch(const MatmulArgs& args) {
  for (int64_t b = 0; b < args.batch; ++b) {
    Multiply(args, static_cast<const T*>(args.a) + b * args.stride_a,
             static_cast<const T*>(args.b) + b * args.stride_b,
             static_cast<Out*>(args.c) + b * args.stride_c);
  }
}

void Matmul(const MatmulArgs& args, void* /*stream*/) {
  if (args.m == 0 || args.n == 0) return;
  Dispatch<float, BFloat16, Float16, double>("matmul", args.input_dtype, [&](auto tag) {
    using T = decltype(tag);
    if (args.output_dtype == args.input_dtype) {
      MultiplyBatch<T, T>(args);
    } else if constexpr (sizeof(T) == 2) {
      Dispatch<float>("matmul's output", args.output_dtype,
                      [&](auto) { MultiplyBatch<T, float>(args); });
    } else {
      UnsupportedDType("matmul's output", args.output_dtype);
    }
  });
}

int64_t ScratchBytes(const MatmulArgs& args) {
  if (args.m == 0 || args.n == 0) return 0;
  const Scratch s =
      args.input_dtype == DType::kF64 ? ScratchOf<double>(args) : ScratchOf<float>(args);
  return s.a + s.b + s.sums;
}

}  // namespace

extern const MatmulKernels kPackedMatmul = {.matmul = Matmul, .scratch_bytes = ScratchBytes};

}  // namespace pando::PANDO_ISA
