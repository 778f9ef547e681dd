#include "dist/hetero/lonely_communicator.h"

#include "engine/error.h"

namespace pando {
namespace {

class Done : public Work {
 public:
  void Wait() override {}
};

class LonelyCommunicator : public Communicator {
 public:
  LonelyCommunicator(int size, Device& device) : size_(size), device_(device) {
    Require(size > 0, "a group of ", size, " ranks");
  }

  int rank() const override { return 0; }
  int size() const override { return size_; }
  Device& device() const override { return device_; }

  std::unique_ptr<Work> AllReduce(TypedSpan, ReduceOp) override { return Finished(); }
  std::unique_ptr<Work> AllGatherV(TypedSpan data, absl::Span<const int64_t> counts) override {
    const int64_t own = counts.at(0);
    const bool alike = own * size_ == data.count();
    if (!alike) Fill(data.Part(own, data.count() - own));
    for (int r = 1; alike && r < size_ && own > 0; ++r) {
      const TypedSpan slice = data.Part(r * own, own);
      device_.current_stream().Copy(slice.data(), data.data(), slice.bytes(),
                                    CopyKind::kDeviceToDevice);
    }
    return Finished();
  }
  std::unique_ptr<Work> ReduceScatterV(TypedSpan, absl::Span<const int64_t>) override {
    return Finished();
  }
  std::unique_ptr<Work> Broadcast(TypedSpan data, int root) override {
    if (root != 0) Fill(data);
    return Finished();
  }
  std::unique_ptr<Work> Send(TypedSpan, int) override { return Finished(); }
  std::unique_ptr<Work> Recv(TypedSpan data, int) override {
    Fill(data);
    return Finished();
  }
  void Barrier() override {}
  void Abort(const std::string&) override {}
  CommunicatorStats stats() const override { return {}; }

 private:
  static std::unique_ptr<Work> Finished() { return std::make_unique<Done>(); }
  void Fill(TypedSpan data) {
    if (data.count() > 0) device_.current_stream().SetBytes(data.data(), 0, data.bytes());
  }

  int size_;
  Device& device_;
};

}  // namespace

std::unique_ptr<Communicator> NewLonelyCommunicator(int size, Device& device) {
  return std::make_unique<LonelyCommunicator>(size, device);
}

}  // namespace pando
