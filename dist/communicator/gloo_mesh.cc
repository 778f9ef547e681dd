#include "dist/communicator/gloo_mesh.h"

#include <gloo/common/error.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <netdb.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <pthread.h>
#include <sys/random.h>

#include <array>
#include <csignal>
#include <cstring>
#include <ctime>
#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/error.h"

namespace pando {
namespace {

using Nonce = std::array<unsigned char, 16>;
using Mac = std::array<unsigned char, 32>;

// gloo keeps the messages of a slot in order, which is all that is asked of it.
constexpr uint64_t kSlot = 1;

/// gloo's view of our store.
class StoreForGloo : public gloo::rendezvous::Store {
 public:
  explicit StoreForGloo(const GlooOptions& options)
      : options_(options), deadline_(absl::Now() + absl::FromChrono(options.timeout)) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    const absl::Status put = options_.store->Put(Key(key), {data.data(), data.size()});
    if (!put.ok()) throw PeerLost(absl::StrCat("the store: ", std::string(put.message())));
  }
  std::vector<char> get(const std::string& key) override {
    const absl::StatusOr<std::string> value = options_.store->Await(Key(key), deadline_);
    if (absl::IsDeadlineExceeded(value.status())) {
      throw PeerLost(absl::StrCat("rank ", RankOf(key), " did not come"));
    }
    if (!value.ok()) throw PeerLost(absl::StrCat("the store: ", value.status().ToString()));
    return {value->begin(), value->end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) get(key);
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override {
    wait(keys);
  }

 private:
  std::string Key(const std::string& key) const {
    return absl::StrCat(options_.prefix, "/gloo/", key);
  }
  /// gloo's keys end in the rank.
  static std::string RankOf(const std::string& key) {
    const size_t at = key.find_last_not_of("0123456789");
    return key.substr(at == std::string::npos ? 0 : at + 1);
  }

  const GlooOptions& options_;
  absl::Time deadline_;
};

/// gloo takes a resolved address. (A port in it would be all its connections', and each of them
/// listens on its own.)
gloo::transport::tcp::attr Resolve(const std::string& address) {
  Require(address != "0.0.0.0" && address != "::", "address ", address,
          ": others can't reach this rank by it; give the one that they reach it by");
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.c_str(), nullptr, &hints, &found);
  Require(error == 0, "address ", address, ": ", gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  gloo::transport::tcp::attr attr;
  attr.hostname = address;
  attr.ai_family = found->ai_family;
  attr.ai_socktype = found->ai_socktype;
  attr.ai_protocol = found->ai_protocol;
  std::memcpy(&attr.ai_addr, found->ai_addr, found->ai_addrlen);
  attr.ai_addrlen = static_cast<int>(found->ai_addrlen);
  return attr;
}

std::shared_ptr<gloo::transport::Device> Listen(const GlooOptions& o) {
  try {
    return std::make_shared<gloo::transport::tcp::Device>(Resolve(o.address));
  } catch (const gloo::Exception& e) {
    throw InvalidArgument(absl::StrCat("can't listen on ", o.address, ": ", e.what()));
  }
}

Mac Sign(const std::string& secret, const std::string& text, const Nonce& nonce) {
  std::string message = text;
  message.append(reinterpret_cast<const char*>(nonce.data()), nonce.size());
  Mac mac;
  unsigned int length = 0;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
       reinterpret_cast<const unsigned char*>(message.data()), message.size(), mac.data(), &length);
  return mac;
}

/// gloo writes to connections that peers may have closed, for which the system would end the
/// process with SIGPIPE. While this lives, such a write of this thread, or of one that it starts
/// (gloo's own, which inherits what is blocked), is an error like others.
class NoBrokenPipeSignal {
 public:
  NoBrokenPipeSignal() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoBrokenPipeSignal() {
    // One that has come meanwhile would end the process now.
    const timespec no_time = {};
    while (sigtimedwait(&pipe_, nullptr, &no_time) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoBrokenPipeSignal(const NoBrokenPipeSignal&) = delete;
  NoBrokenPipeSignal& operator=(const NoBrokenPipeSignal&) = delete;

 private:
  sigset_t pipe_, before_;
};

void Check(const GlooOptions& o) {
  Require(o.size > 0 && o.rank >= 0 && o.rank < o.size, "rank ", o.rank, " of ", o.size);
  Require(o.store != nullptr || o.size == 1, "ranks need a store to find each other in");
}

}  // namespace

class GlooMesh::Buffer : public MessageBuffer {
 public:
  Buffer(GlooMesh& mesh, void* data, int64_t bytes)
      : mesh_(mesh), buffer_(mesh.context_->createUnboundBuffer(data, static_cast<size_t>(bytes))) {
    const std::lock_guard lock(mesh_.mutex_);
    mesh_.open_.insert(buffer_.get());
  }
  ~Buffer() override {
    const std::lock_guard lock(mesh_.mutex_);
    mesh_.open_.erase(buffer_.get());
    if (mesh_.failed_) mesh_.failed_buffers_.push_back(std::move(buffer_));
  }

  void Send(int to, int64_t offset, int64_t bytes) override {
    Guarded(
        [&] { buffer_->send(to, kSlot, static_cast<size_t>(offset), static_cast<size_t>(bytes)); });
  }
  void Recv(int from, int64_t offset, int64_t bytes) override {
    Guarded([&] {
      buffer_->recv(from, kSlot, static_cast<size_t>(offset), static_cast<size_t>(bytes));
    });
  }
  void WaitSend() override {
    Guarded([&] { Finished(buffer_->waitSend(mesh_.options_.timeout)); });
  }
  void WaitRecv() override {
    Guarded([&] { Finished(buffer_->waitRecv(mesh_.options_.timeout)); });
  }

 private:
  /// The one place where gloo's exceptions become ours.
  template <typename F>
  void Guarded(F call) {
    {
      const std::lock_guard lock(mesh_.mutex_);
      if (mesh_.aborted_) throw PeerLost("aborted");
    }
    const NoBrokenPipeSignal quiet;
    try {
      call();
    } catch (const gloo::Exception& e) {
      Fail(e.what());
    }
  }
  void Finished(bool finished) {
    if (!finished) Fail("aborted");
  }
  [[noreturn]] void Fail(const char* why) {
    const std::lock_guard lock(mesh_.mutex_);
    mesh_.failed_ = true;
    throw PeerLost(why);
  }

  GlooMesh& mesh_;
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
};

GlooMesh::GlooMesh(const GlooOptions& options) : options_(options) {
  Check(options_);
  if (options_.size == 1) return;
  const NoBrokenPipeSignal quiet;
  try {
    Connect();
    ProveEachOther();
  } catch (const gloo::Exception& e) {
    throw PeerLost(absl::StrCat("while ranks connected: ", e.what()));
  }
}

GlooMesh::~GlooMesh() {
  if (!failed_buffers_.empty()) Abort();
}

void GlooMesh::Connect() {
  auto context = std::make_shared<gloo::rendezvous::Context>(options_.rank, options_.size);
  context->setTimeout(options_.timeout);
  std::shared_ptr<gloo::transport::Device> device = Listen(options_);
  StoreForGloo store(options_);
  context->connectFullMesh(store, device);
  context_ = std::move(context);
}

void GlooMesh::ProveEachOther() {
  const auto n = static_cast<size_t>(size());
  // What rank `from` says to rank `to`: it can't be said again to another, or in another group.
  const auto text = [this](size_t from, size_t to) {
    return absl::StrCat(options_.prefix, "|", from, "|", to, "|");
  };
  std::vector<Nonce> mine(n), theirs(n);
  std::vector<Mac> said(n), heard(n);
  const auto exchange = [&](auto& out, auto& in) {
    constexpr auto kBytes = static_cast<int64_t>(sizeof(out[0]));
    const auto sent = Open(out.data(), kBytes * size());
    const auto received = Open(in.data(), kBytes * size());
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      received->Recv(r, kBytes * r, kBytes);
      sent->Send(r, kBytes * r, kBytes);
    }
    for (int r = 0; r < size() - 1; ++r) received->WaitRecv();
    for (int r = 0; r < size() - 1; ++r) sent->WaitSend();
  };
  Require(getrandom(mine.data(), n * sizeof(Nonce), 0) == static_cast<ssize_t>(n * sizeof(Nonce)),
          "no random numbers");
  exchange(mine, theirs);
  const auto me = static_cast<size_t>(rank());
  for (size_t r = 0; r < n; ++r) said[r] = Sign(options_.secret, text(me, r), theirs[r]);
  exchange(said, heard);
  for (size_t r = 0; r < n; ++r) {
    if (r == me) continue;
    const Mac right = Sign(options_.secret, text(r, me), mine[r]);
    if (CRYPTO_memcmp(right.data(), heard[r].data(), right.size()) != 0) {
      Abort();
      throw PeerLost(absl::StrCat("rank ", r,
                                  " does not know the job's secret, or is of another "
                                  "generation"));
    }
  }
}

std::unique_ptr<MessageBuffer> GlooMesh::Open(void* data, int64_t bytes) {
  return std::make_unique<Buffer>(*this, data, bytes);
}

void GlooMesh::Abort() {
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) return;
    aborted_ = failed_ = true;
    for (gloo::transport::UnboundBuffer* buffer : open_) {
      buffer->abortWaitRecv();
      buffer->abortWaitSend();
    }
  }
  if (context_ != nullptr) context_->closeConnections();
}

}  // namespace pando
