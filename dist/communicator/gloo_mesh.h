#pragma once

// Connections of every rank with every other, over gloo's TCP transport.

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "dist/communicator/ring.h"
#include "dist/store/key_value_store.h"

namespace gloo {
class Context;
namespace transport {
class UnboundBuffer;
}  // namespace transport
}  // namespace gloo

namespace pando {

struct GlooOptions {
  int rank = 0;
  int size = 1;
  /// Where ranks find each other; must outlive the forming only.
  KeyValueStore* store = nullptr;
  /// Of all keys in the store. Holds the generation, so that a rank of an older one finds nobody.
  std::string prefix = "pando/0";
  /// What all ranks of the job know, and nobody else.
  std::string secret;
  /// Name or address of the network interface's side to listen on.
  std::string address = "127.0.0.1";
  /// How long a peer may take to come, and to answer.
  std::chrono::milliseconds timeout{std::chrono::minutes(5)};
};

/// The group, formed. Methods throw PeerLost.
class GlooMesh : public Messenger {
 public:
  /// Connects all ranks and has each prove to each other that it knows the secret and means the
  /// same prefix. Throws PeerLost, naming the rank that did not come or did not prove itself;
  /// InvalidArgument for options that make no sense or an address that can't be listened on.
  explicit GlooMesh(const GlooOptions& options);
  ~GlooMesh() override;

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  std::unique_ptr<MessageBuffer> Open(void* data, int64_t bytes) override;

  /// From any thread, without blocking: ends all waits, and all connections, so that peers learn.
  void Abort();

 private:
  class Buffer;

  void Connect();
  void ProveEachOther();

  GlooOptions options_;
  std::shared_ptr<gloo::Context> context_;
  std::mutex mutex_;
  std::set<gloo::transport::UnboundBuffer*> open_;
  /// Closed after a failure. gloo's own thread may be telling them of it still, until the
  /// connections are closed.
  std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> failed_buffers_;
  bool failed_ = false;
  bool aborted_ = false;
};

}  // namespace pando
