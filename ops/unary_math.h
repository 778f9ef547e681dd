#pragma once

// Per-element mathematics of the unary operations, shared by the CPU and CUDA: the value, and the
// gradient of x from that of y and what SavedBy(op) says was saved.

#include "engine/types.h"
#include "ops/kernels/unary.h"
#include "ops/math.h"

namespace pando {

/// UnaryOp::kExp.
struct ExpMath {
  template <typename C>
  static PANDO_HOST_DEVICE inline C Value(C x) {
    return Exp(x);
  }
  template <typename C>
  static PANDO_HOST_DEVICE inline C Grad(C dy, C y) {
    return dy * y;
  }
};

/// UnaryOp::kLog.
struct LogMath {
  template <typename C>
  static PANDO_HOST_DEVICE inline C Value(C x) {
    return Log(x);
  }
  template <typename C>
  static PANDO_HOST_DEVICE inline C Grad(C dy, C x) {
    return dy / x;
  }
};

/// UnaryOp::kNeg.
struct NegMath {
  template <typename C>
  static PANDO_HOST_DEVICE inline C Value(C x) {
    return -x;
  }
  template <typename C>
  static PANDO_HOST_DEVICE inline C Grad(C dy, C) {
    return -dy;
  }
};

/// UnaryOp::kSqrt.
struct SqrtMath {
  template <typename C>
  static PANDO_HOST_DEVICE inline C Value(C x) {
    return Sqrt(x);
  }
  template <typename C>
  static PANDO_HOST_DEVICE inline C Grad(C dy, C y) {
    return C(0.5) * dy / y;
  }
};

/// UnaryOp::kTanh.
struct TanhMath {
  template <typename C>
  static PANDO_HOST_DEVICE inline C Value(C x) {
    return Tanh(x);
  }
  // (1 - y)(1 + y): 1 - y^2 would lose what is left near 1.
  template <typename C>
  static PANDO_HOST_DEVICE inline C Grad(C dy, C y) {
    return dy * ((C(1) - y) * (C(1) + y));
  }
};

/// UnaryOp::kSigmoid.
struct SigmoidMath {
  template <typename C>
  static PANDO_HOST_DEVICE inline C Value(C x) {
    return Sigmoid(x);
  }
  template <typename C>
  static PANDO_HOST_DEVICE inline C Grad(C dy, C y) {
    return dy * (y * (C(1) - y));
  }
};

/// UnaryOp::kSilu.
struct SiluMath {
  template <typename C>
  static PANDO_HOST_DEVICE inline C Value(C x) {
    return Silu(x);
  }
  template <typename C>
  static PANDO_HOST_DEVICE inline C Grad(C dy, C x) {
    return dy * SiluDerivative(x);
  }
};

/// UnaryOp::kRelu.
struct ReluMath {
  // NaN stays NaN.
  template <typename C>
  static PANDO_HOST_DEVICE inline C Value(C x) {
    return x <= C(0) ? C(0) : x;
  }
  template <typename C>
  static PANDO_HOST_DEVICE inline C Grad(C dy, C y) {
    return y <= C(0) ? C(0) : dy;
  }
};

/// UnaryOp::kSquare.
struct SquareMath {
  template <typename C>
  static PANDO_HOST_DEVICE inline C Value(C x) {
    return x * x;
  }
  template <typename C>
  static PANDO_HOST_DEVICE inline C Grad(C dy, C x) {
    return C(2) * dy * x;
  }
};

/// UnaryOp::kReciprocal.
struct ReciprocalMath {
  template <typename C>
  static PANDO_HOST_DEVICE inline C Value(C x) {
    return C(1) / x;
  }
  template <typename C>
  static PANDO_HOST_DEVICE inline C Grad(C dy, C y) {
    return -dy * y * y;
  }
};

/// body(the struct above that belongs to `op`).
template <typename Body>
PANDO_HOST_DEVICE PANDO_ALWAYS_INLINE void DispatchUnary(UnaryOp op, const Body& body) {
  switch (op) {
    case UnaryOp::kExp:
      return body(ExpMath{});
    case UnaryOp::kLog:
      return body(LogMath{});
    case UnaryOp::kNeg:
      return body(NegMath{});
    case UnaryOp::kSqrt:
      return body(SqrtMath{});
    case UnaryOp::kTanh:
      return body(TanhMath{});
    case UnaryOp::kSigmoid:
      return body(SigmoidMath{});
    case UnaryOp::kSilu:
      return body(SiluMath{});
    case UnaryOp::kRelu:
      return body(ReluMath{});
    case UnaryOp::kSquare:
      return body(SquareMath{});
    case UnaryOp::kReciprocal:
      return body(ReciprocalMath{});
  }
}

}  // namespace pando
