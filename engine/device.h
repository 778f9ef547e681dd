#pragma once

// The device seam: the one page that a new kind of accelerator fills. Everything above it (tensors,
// optimizer, dist, ckpt) reaches memory, streams and vector kernels only through these classes; ops
// keep their own kernel tables per device beside each op (ops/kernel_table.h).

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>

#include "engine/kernel.h"
#include "engine/trace.h"
#include "engine/vector_kernels.h"

namespace pando {

class Allocator;
class Device;
class Storage;

/// Bits of Device::error_flag.
enum DeviceErrorBit : int32_t {
  kIndexOutOfRange = 1,  ///< a token or a target beyond the vocabulary
};

enum class DeviceType { kCpu = 0, kCuda = 1 };
inline constexpr int kDeviceTypes = 2;

/// Which side each end of a copy lies on.
enum class CopyKind { kHostToDevice, kDeviceToHost, kDeviceToDevice };

/// A point in a stream's work. Made by Device::NewEvent; reusable.
class Event {
 public:
  virtual ~Event() = default;
  /// Blocks the calling thread until the work recorded before the event is done. Returns at once if
  /// the event was never recorded.
  virtual void Synchronize() = 0;
};

/// A queue of work of one device, executed in order. Streams are independent of each other unless
/// an Event orders them. Not thread-safe: one thread submits to a stream at a time.
class Stream {
 public:
  virtual ~Stream() = default;

  /// Runs `kernel(args)` after all work submitted before it.
  template <typename Args>
  void Launch(Kernel<Args> kernel, const Args& args) {
    static_assert(std::is_trivially_copyable_v<Args>);
    struct Call {
      Kernel<Args> kernel;
      Args args;
      static void Run(const void* call, void* native_stream) {
        const Call& c = *static_cast<const Call*>(call);
        c.kernel(c.args, native_stream);
      }
    };
    const Call call{kernel, args};
    const TraceSpan span(KernelName<Args>());
    Submit(&Call::Run, &call, sizeof(Call));
  }

  /// Copies `bytes`. Host memory that takes part must stay as it is until the copy is done.
  virtual void Copy(void* dst, const void* src, int64_t bytes, CopyKind kind) = 0;
  /// Sets `bytes` bytes to `value`.
  virtual void SetBytes(void* dst, int value, int64_t bytes) = 0;
  /// Marks the end of the work submitted so far.
  virtual void Record(Event& event) = 0;
  /// Work submitted after this runs only once the work before `event`'s record is done.
  virtual void Wait(Event& event) = 0;
  /// Blocks the calling thread until all work is done.
  virtual void Synchronize() = 0;

  virtual Device& device() = 0;

 protected:
  /// Queues `run(call, native_stream)`. `call` is `size` trivially copyable bytes, aligned for any
  /// scalar, which the stream copies if it does not run at once.
  virtual void Submit(void (*run)(const void* call, void* native_stream), const void* call,
                      size_t size) = 0;
};

/// One accelerator, or the CPU. Devices live as long as the process.
class Device {
 public:
  virtual ~Device();

  virtual DeviceType type() const = 0;
  /// "cpu", "cuda:0".
  virtual std::string name() const = 0;

  virtual std::unique_ptr<Stream> NewStream() = 0;
  virtual std::unique_ptr<Event> NewEvent() = 0;
  /// The kernels that optimizer, dist and ckpt use.
  virtual const VectorKernels& vector_kernels() const = 0;

  /// Blocks until every stream of this device is idle.
  virtual void Synchronize() = 0;

  /// Memory from the system, for the allocator alone: null when there is no more.
  virtual void* AllocateFromSystem(int64_t bytes) = 0;
  virtual void FreeToSystem(void* ptr, int64_t bytes) = 0;
  /// Host memory that this device copies from and to without a detour (pinned, for CUDA).
  virtual void* AllocateHost(int64_t bytes) = 0;
  virtual void FreeHost(void* ptr, int64_t bytes) = 0;
  /// Memory that the device has in all, in bytes.
  virtual int64_t TotalMemory() const = 0;

  /// All tensors' memory, and libraries' scratch, comes from here.
  Allocator& allocator() { return *allocator_; }
  /// The stream on which this thread's operations run; the device's first stream unless a
  /// StreamGuard says otherwise.
  Stream& current_stream();

  /// An int32 on the device in which kernels report, by setting bits, what they can't throw: see
  /// DeviceErrorBit.
  int32_t* error_flag();
  /// Waits for the current stream and throws InvalidArgument if a kernel has reported an error
  /// since the last check. Whoever reads a loss or logits calls this.
  void CheckErrorFlag();

 protected:
  Device();
  void SetFirstStream(std::unique_ptr<Stream> stream) { first_stream_ = std::move(stream); }
  /// For devices that end before the process: gives all memory back. No tensor may be left.
  void Shutdown();

 private:
  std::unique_ptr<Allocator> allocator_;
  std::unique_ptr<Stream> first_stream_;
  std::unique_ptr<Storage> error_flag_;
};

/// While it lives, this thread's operations on the stream's device run on `stream`.
class StreamGuard {
 public:
  explicit StreamGuard(Stream& stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  Stream* previous_;
  Device& device_;
};

}  // namespace pando
