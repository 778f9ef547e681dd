#pragma once

#include <atomic>

namespace pando {

/// Whether f32 products on CUDA may round their inputs to TF32 (10 bits behind the point; compute
/// capability 8.0 and newer). Off unless the user asks for it (--precision tf32).
inline std::atomic<bool> allow_tf32{false};

}  // namespace pando
