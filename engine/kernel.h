#pragma once

namespace pando {

/// A kernel as every device's tables hold it. `Args` is a trivially copyable struct of raw
/// pointers, sizes (int64_t) and scalars. `native_stream` is null on the CPU and a cudaStream_t on
/// CUDA. Engine's Stream::Launch(kernel, args) runs it in stream order, now or later; so whatever
/// the pointers refer to must stay alive until then, which the stream-ordered allocator sees to.
template <typename Args>
using Kernel = void (*)(const Args& args, void* native_stream);

}  // namespace pando
