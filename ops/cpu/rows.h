#pragma once

// What the strided CPU kernels share. They handle a piece of a row at a time: where it is not
// already contiguous and of the compute type, it is first gathered into a buffer that stays in the
// first-level cache. So each kernel has one inner loop, over contiguous values, that vectorises.

#include "engine/cpu/dispatch.h"
#include "engine/cpu/parallel.h"
#include "engine/types.h"
#include "ops/kernels/strided.h"

namespace pando::PANDO_ISA {

// Elements of the longest piece, hence of buffers.
constexpr int64_t kPiece = 1024;

// Elements per task: long enough to hide a thread's start, short enough to share evenly.
constexpr int64_t kGrain = 32768;

template <typename Body>
void DispatchFloating(const char* kernel, DType dtype, const Body& body) {
  Dispatch<float, BFloat16, Float16, double>(kernel, dtype, body);
}

// For gradients: body(Y, X), where Y is the same as X or float.
template <typename Body>
void DispatchGradient(const char* kernel, DType y_dtype, DType x_dtype, const Body& body) {
  if (y_dtype == x_dtype) {
    DispatchFloating(kernel, x_dtype, [&](auto tag) { body(tag, tag); });
    return;
  }
  if (y_dtype != DType::kF32) UnsupportedDType(kernel, y_dtype);
  Dispatch<BFloat16, Float16>(kernel, x_dtype, [&](auto tag) { body(float{}, tag); });
}

// For kernels that only move elements: body(unsigned integer of the size of a `dtype`).
template <typename Body>
void DispatchSize(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kBF16:
    case DType::kF16:
      return body(uint16_t{});
    case DType::kF32:
    case DType::kI32:
      return body(uint32_t{});
    case DType::kF64:
    case DType::kI64:
      return body(uint64_t{});
  }
}

// The stride of operand k along a row.
template <int N>
PANDO_ALWAYS_INLINE int64_t RowStride(const StridedIndex<N>& index, int k) {
  return index.stride[k][index.rank - 1];
}

// Calls body(element, offsets, n) for successive pieces of rows that make up elements [begin, end)
// of the box: the piece begins at `element`, in operand k at offsets[k], and has n <= kPiece
// elements in one row.
template <int N, typename Body>
void ForPieces(const StridedIndex<N>& index, int64_t begin, int64_t end, const Body& body) {
  if (begin >= end) return;
  const int64_t last = index.rank - 1;
  int64_t at[kMaxDims];
  int64_t offset[N] = {};
  int64_t rest = begin;
  for (int64_t d = last; d >= 0; --d) {
    at[d] = rest % index.size[d];
    rest /= index.size[d];
    for (int k = 0; k < N; ++k) offset[k] += at[d] * index.stride[k][d];
  }
  for (int64_t i = begin;;) {
    int64_t n = index.size[last] - at[last];
    if (n > kPiece) n = kPiece;
    if (n > end - i) n = end - i;
    body(i, static_cast<const int64_t*>(offset), n);
    i += n;
    if (i >= end) return;
    at[last] += n;
    for (int k = 0; k < N; ++k) offset[k] += n * index.stride[k][last];
    for (int64_t d = last; d > 0 && at[d] == index.size[d]; --d) {
      at[d] = 0;
      ++at[d - 1];
      for (int k = 0; k < N; ++k) {
        offset[k] += index.stride[k][d - 1] - index.size[d] * index.stride[k][d];
      }
    }
  }
}

// The type in which an element is computed with or moved, and its value: itself but for 16-bit
// floats.
template <typename T>
struct RowValue {
  using type = T;
  static constexpr bool kIsElement = true;
  static PANDO_ALWAYS_INLINE type Of(T x) { return x; }
};
template <>
struct RowValue<BFloat16> {
  using type = float;
  static constexpr bool kIsElement = false;
  static PANDO_ALWAYS_INLINE type Of(BFloat16 x) { return ToFloat(x); }
};
template <>
struct RowValue<Float16> {
  using type = float;
  static constexpr bool kIsElement = false;
  static PANDO_ALWAYS_INLINE type Of(Float16 x) { return ToFloat(x); }
};

// n elements from p on as contiguous values: those in memory where possible, else in `buffer`.
template <typename T>
PANDO_ALWAYS_INLINE const typename RowValue<T>::type* RowValues(
    const T* p, int64_t stride, int64_t n, typename RowValue<T>::type* buffer) {
  if constexpr (RowValue<T>::kIsElement) {
    if (stride == 1) return p;
  }
  if (stride == 1) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) buffer[i] = RowValue<T>::Of(p[i]);
  } else if (stride == 0) {
    const auto value = RowValue<T>::Of(*p);
    for (int64_t i = 0; i < n; ++i) buffer[i] = value;
  } else {
    for (int64_t i = 0; i < n; ++i) buffer[i] = RowValue<T>::Of(p[i * stride]);
  }
  return buffer;
}

}  // namespace pando::PANDO_ISA
