#pragma once

// Sums over a row whose error does not grow with its length, however many elements the compiler
// takes at once.

#include "engine/types.h"

namespace pando::PANDO_ISA {

// Terms that are added one by one at most.
constexpr int64_t kSumPiece = 256;

// Calls body(from, to) for successive pieces of [begin, end) of at most kSumPiece elements.
template <typename Body>
PANDO_ALWAYS_INLINE void ForSumPieces(int64_t begin, int64_t end, const Body& body) {
  for (int64_t from = begin; from < end; from += kSumPiece) {
    body(from, end - from < kSumPiece ? end : from + kSumPiece);
  }
}

// Sum of term(c) for c in [begin, end), computed in C.
template <typename C, typename Term>
PANDO_ALWAYS_INLINE C SumInPieces(int64_t begin, int64_t end, const Term& term) {
  C sum = 0;
  ForSumPieces(begin, end, [&](int64_t from, int64_t to) {
    C piece = 0;
#pragma omp simd reduction(+ : piece)
    for (int64_t c = from; c < to; ++c) piece += term(c);
    sum += piece;
  });
  return sum;
}

}  // namespace pando::PANDO_ISA
