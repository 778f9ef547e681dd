#pragma once

// The one way in which Pando's CPU kernels use several threads. Self-contained and free of
// templates from the standard library: kernels that are compiled once per instruction set include
// it (see ops/cpu/isa.bzl).

#include <cstdint>

namespace pando {

/// A non-owning reference to a callable `void(int64_t begin, int64_t end)`.
class RangeBody {
 public:
  template <typename F>
  RangeBody(const F& f)  // NOLINT: implicit on purpose, so that a lambda can be passed
      : object_(&f),
        call_([](const void* o, int64_t b, int64_t e) { (*static_cast<const F*>(o))(b, e); }) {}
  void operator()(int64_t begin, int64_t end) const { call_(object_, begin, end); }

 private:
  const void* object_;
  void (*call_)(const void*, int64_t, int64_t);
};

/// Cuts [0, n) into chunks of `grain` (the last may be shorter) and calls body(begin, end) once for
/// each, on up to NumThreads() threads. Chunk boundaries depend on n and grain only, never on the
/// number of threads, so that reductions over chunks are reproducible. `body` must not throw.
/// A call from inside a body runs its chunks one after another.
void ParallelFor(int64_t n, int64_t grain, RangeBody body);

/// Threads that ParallelFor and oneDNN use in this process.
int NumThreads();

/// Sets it (at least 1). Call before training, not while a ParallelFor runs.
void SetNumThreads(int n);

}  // namespace pando
