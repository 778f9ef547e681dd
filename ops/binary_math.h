#pragma once

// Per-element mathematics of the binary operations, shared by the CPU and CUDA: the value, what an
// element contributes to the gradients of a and b, and comparisons.

#include "engine/types.h"
#include "ops/kernels/binary.h"

namespace pando {

/// BinaryOp::kAdd.
struct AddMath {
  template <typename C>
  static PANDO_HOST_DEVICE inline C Value(C a, C b) {
    return a + b;
  }
  template <typename C>
  static PANDO_HOST_DEVICE inline C GradA(C dy, C, C) {
    return dy;
  }
  template <typename C>
  static PANDO_HOST_DEVICE inline C GradB(C dy, C, C) {
    return dy;
  }
};

/// BinaryOp::kSub.
struct SubMath {
  template <typename C>
  static PANDO_HOST_DEVICE inline C Value(C a, C b) {
    return a - b;
  }
  template <typename C>
  static PANDO_HOST_DEVICE inline C GradA(C dy, C, C) {
    return dy;
  }
  template <typename C>
  static PANDO_HOST_DEVICE inline C GradB(C dy, C, C) {
    return -dy;
  }
};

/// BinaryOp::kMul.
struct MulMath {
  template <typename C>
  static PANDO_HOST_DEVICE inline C Value(C a, C b) {
    return a * b;
  }
  template <typename C>
  static PANDO_HOST_DEVICE inline C GradA(C dy, C, C b) {
    return dy * b;
  }
  template <typename C>
  static PANDO_HOST_DEVICE inline C GradB(C dy, C a, C) {
    return dy * a;
  }
};

/// BinaryOp::kDiv.
struct DivMath {
  template <typename C>
  static PANDO_HOST_DEVICE inline C Value(C a, C b) {
    return a / b;
  }
  template <typename C>
  static PANDO_HOST_DEVICE inline C GradA(C dy, C, C b) {
    return dy / b;
  }
  // (a / b) / b rather than a / (b b): b b may leave the range.
  template <typename C>
  static PANDO_HOST_DEVICE inline C GradB(C dy, C a, C b) {
    return -dy * (a / b / b);
  }
};

/// The one of two that is taken as a whole: `Takes::A` says whether a.
template <typename Takes>
struct SelectMath {
  template <typename C>
  static PANDO_HOST_DEVICE inline C Value(C a, C b) {
    return Takes::A(a, b) ? a : b;
  }
  template <typename C>
  static PANDO_HOST_DEVICE inline C GradA(C dy, C a, C b) {
    return Takes::A(a, b) ? dy : C{0};
  }
  template <typename C>
  static PANDO_HOST_DEVICE inline C GradB(C dy, C a, C b) {
    return Takes::A(a, b) ? C{0} : dy;
  }
};

/// Whether a maximum is a: where a is NaN, or not less than b. NaN in b alone takes b.
struct TakesMax {
  template <typename C>
  static PANDO_HOST_DEVICE inline bool A(C a, C b) {
    return a >= b || a != a;
  }
};

/// The same of a minimum.
struct TakesMin {
  template <typename C>
  static PANDO_HOST_DEVICE inline bool A(C a, C b) {
    return a <= b || a != a;
  }
};

/// BinaryOp::kMax and kMin.
using MaxMath = SelectMath<TakesMax>;
using MinMath = SelectMath<TakesMin>;

/// body(the struct above that belongs to `op`).
template <typename Body>
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE void DispatchBinary(BinaryOp op, const Body& body) {
  switch (op) {
    case BinaryOp::kAdd:
      return body(AddMath{});
    case BinaryOp::kSub:
      return body(SubMath{});
    case BinaryOp::kMul:
      return body(MulMath{});
    case BinaryOp::kDiv:
      return body(DivMath{});
    case BinaryOp::kMax:
      return body(MaxMath{});
    case BinaryOp::kMin:
      return body(MinMath{});
  }
}

/// Whether a op b.
template <CompareOp kOp, typename V>
PANDO_HOST_DEVICE inline bool Holds(V a, V b) {
  switch (kOp) {
    case CompareOp::kEqual:
      return a == b;
    case CompareOp::kNotEqual:
      return a != b;
    case CompareOp::kLess:
      return a < b;
    case CompareOp::kLessEqual:
      return a <= b;
    case CompareOp::kGreater:
      return a > b;
    case CompareOp::kGreaterEqual:
      return a >= b;
  }
  return false;
}

}  // namespace pando
