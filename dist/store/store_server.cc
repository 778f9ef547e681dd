#include "dist/store/store_server.h"

#include <httplib.h>
#include <openssl/crypto.h>
#include <sys/random.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "dist/store/json_protocol.h"
#include "dist/store/store_state.h"

namespace pando {
namespace {

// Connections served at once. A watch holds one.
constexpr size_t kConnections = 1024;
// Of a request.
constexpr size_t kMostBytes = size_t{16} << 20;
// How soon a watch notices that its client has gone.
constexpr auto kWatchBreath = std::chrono::milliseconds(500);

/// A thread per connection, as a watch would hold a pool's thread for ever.
class ThreadPerConnection : public httplib::TaskQueue {
 public:
  void enqueue(std::function<void()> serve) override {
    std::unique_lock lock(mutex_);
    free_.wait(lock, [this] { return running_ < kConnections; });
    ++running_;
    std::thread([this, serve = std::move(serve)] {
      serve();
      const std::lock_guard inner(mutex_);
      --running_;
      free_.notify_all();
    }).detach();
  }
  void shutdown() override {
    std::unique_lock lock(mutex_);
    free_.wait(lock, [this] { return running_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable free_;
  size_t running_ = 0;
};

int HttpStatus(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kNotFound:
      return 404;
    default:
      return 500;
  }
}

void Refuse(const absl::Status& status, httplib::Response& out) {
  const std::string message(status.message());
  const Json body = {
      {"error", message}, {"code", static_cast<int>(status.code())}, {"message", message}};
  out.status = HttpStatus(status.code());
  out.set_content(body.dump(-1, ' ', false, Json::error_handler_t::replace), "application/json");
}

template <typename T>
std::vector<T> ListField(const Json& json, const char* field, T (*from)(const Json&)) {
  std::vector<T> list;
  for (const Json& item : json.value(field, Json::array())) list.push_back(from(item));
  return list;
}

}  // namespace

class StoreServer::Impl {
 public:
  explicit Impl(const StoreServerOptions& options) : options_(options) {
    server_.new_task_queue = [] { return new ThreadPerConnection; };
    server_.set_payload_max_length(kMostBytes);
    server_.set_keep_alive_max_count(1000000);
    server_.set_tcp_nodelay(true);
    // Of one's own accord httplib shares a port with whoever else listens there.
    server_.set_socket_options([](socket_t socket) {
      const int yes = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    });
    server_.set_pre_routing_handler([this](const httplib::Request& in, httplib::Response& out) {
      if (Knows(in)) return httplib::Server::HandlerResponse::Unhandled;
      Refuse(absl::UnauthenticatedError("the job's secret is missing or wrong"), out);
      return httplib::Server::HandlerResponse::Handled;
    });
    Serve("/v3/kv/range", [this](const Json& in) { return OneOperation("request_range", in); });
    Serve("/v3/kv/put", [this](const Json& in) { return OneOperation("request_put", in); });
    Serve("/v3/kv/deleterange",
          [this](const Json& in) { return OneOperation("request_delete_range", in); });
    Serve("/v3/kv/txn", [this](const Json& in) { return Txn(in); });
    Serve("/v3/lease/grant", [this](const Json& in) -> absl::StatusOr<Json> {
      const absl::StatusOr<int64_t> id = state_.GrantLease(IntField(in, "ID"), IntField(in, "TTL"));
      if (!id.ok()) return id.status();
      return Json{{"header", Header()}, {"ID", ToInt(*id)}, {"TTL", in.at("TTL")}};
    });
    Serve("/v3/lease/keepalive", [this](const Json& in) -> absl::StatusOr<Json> {
      // etcd answers for an unknown lease too, without a time.
      const absl::StatusOr<int64_t> ttl = state_.KeepAlive(IntField(in, "ID"));
      Json result = {{"header", Header()}, {"ID", in.at("ID")}};
      if (ttl.ok()) result["TTL"] = ToInt(*ttl);
      return Json{{"result", result}};
    });
    Serve("/v3/lease/revoke", [this](const Json& in) -> absl::StatusOr<Json> {
      const absl::Status revoked = state_.RevokeLease(IntField(in, "ID"));
      if (!revoked.ok()) return revoked;
      return Json{{"header", Header()}};
    });
    Serve("/v3/lease/timetolive", [this](const Json& in) -> absl::StatusOr<Json> {
      const absl::StatusOr<int64_t> ttl = state_.TimeToLive(IntField(in, "ID"));
      return Json{{"header", Header()}, {"ID", in.at("ID")}, {"TTL", ToInt(ttl.value_or(-1))}};
    });
    server_.Post("/v3/watch", [this](const httplib::Request& in, httplib::Response& out) {
      Guarded(in, out, [&](const Json& json) { Watch(json, out); });
    });
  }

  absl::Status Start() {
    port_ = options_.port == 0 ? server_.bind_to_any_port(options_.address)
            : server_.bind_to_port(options_.address, options_.port) ? options_.port
                                                                    : -1;
    if (port_ < 0) {
      return absl::UnavailableError(absl::StrCat("the store can't listen on ", options_.address,
                                                 ":", options_.port,
                                                 ": is another one running there?"));
    }
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::yield();
    return absl::OkStatus();
  }

  ~Impl() {
    state_.Close();
    server_.stop();
    if (thread_.joinable()) thread_.join();
  }

  int port() const { return port_; }
  const std::string& address() const { return options_.address; }

 private:
  using Handler = std::function<absl::StatusOr<Json>(const Json&)>;

  bool Knows(const httplib::Request& in) const {
    const std::string said = in.get_header_value("Authorization");
    return said.size() == options_.secret.size() &&
           CRYPTO_memcmp(said.data(), options_.secret.data(), said.size()) == 0;
  }

  /// Whatever a request holds, the worst that comes of it is a refusal.
  template <typename F>
  static void Guarded(const httplib::Request& in, httplib::Response& out, F handle) {
    try {
      handle(in.body.empty() ? Json::object() : Json::parse(in.body));
    } catch (const std::exception& e) {
      Refuse(absl::InvalidArgumentError(absl::StrCat("not a request: ", e.what())), out);
    }
  }

  void Serve(const char* path, Handler handler) {
    server_.Post(
        path, [handler = std::move(handler)](const httplib::Request& in, httplib::Response& out) {
          Guarded(in, out, [&](const Json& json) {
            const absl::StatusOr<Json> answer = handler(json);
            if (!answer.ok()) return Refuse(answer.status(), out);
            out.set_content(answer->dump() + "\n", "application/json");
          });
        });
  }

  Json Header() const { return {{"revision", ToInt(state_.revision())}}; }
  static Json Header(int64_t revision) { return {{"revision", ToInt(revision)}}; }

  absl::StatusOr<Json> OneOperation(const char* kind, const Json& in) {
    const Operation operation = OperationFrom(Json{{kind, in}});
    const absl::StatusOr<TxnResult> done = state_.Txn({}, {operation}, {});
    if (!done.ok()) return done.status();
    Json body = ToJson(done->results[0], operation.kind).begin().value();
    body["header"] = Header(done->revision);
    return body;
  }

  absl::StatusOr<Json> Txn(const Json& in) {
    const auto then = ListField(in, "success", &OperationFrom);
    const auto otherwise = ListField(in, "failure", &OperationFrom);
    const absl::StatusOr<TxnResult> done =
        state_.Txn(ListField(in, "compare", &CompareFrom), then, otherwise);
    if (!done.ok()) return done.status();
    Json out = {{"header", Header(done->revision)}};
    if (done->succeeded) out["succeeded"] = true;
    const std::vector<Operation>& operations = done->succeeded ? then : otherwise;
    for (size_t i = 0; i < operations.size(); ++i) {
      out["responses"].push_back(ToJson(done->results[i], operations[i].kind));
    }
    return out;
  }

  /// A line of JSON for every batch of events, for as long as the client listens.
  void Watch(const Json& in, httplib::Response& out) {
    const Json& create = in.at("create_request");
    const KeyRange range = KeyRangeFrom(create);
    int64_t next = IntField(create, "start_revision");
    if (next == 0) next = state_.revision() + 1;
    const auto line = [](Json result) { return Json{{"result", std::move(result)}}.dump() + "\n"; };
    bool greeted = false;
    out.set_chunked_content_provider(
        "application/json",
        [this, range, next, greeted, line](size_t, httplib::DataSink& sink) mutable {
          std::string text;
          if (!greeted) {
            text = line({{"header", Header()}, {"created", true}});
            greeted = true;
          } else {
            const absl::StatusOr<std::vector<StoreEvent>> events =
                state_.Watch(range, &next, StoreState::Clock::now() + kWatchBreath);
            if (!events.ok()) {
              text = line({{"header", Header()},
                           {"canceled", true},
                           {"cancel_reason", std::string(events.status().message())}});
              sink.write(text.data(), text.size());
              sink.done();
              return true;
            }
            Json result = {{"header", Header()}};
            for (const StoreEvent& e : *events) result["events"].push_back(ToJson(e));
            if (!events->empty()) text = line(std::move(result));
          }
          return text.empty() ? sink.is_writable() : sink.write(text.data(), text.size());
        });
  }

  StoreServerOptions options_;
  StoreState state_;
  httplib::Server server_;
  std::thread thread_;
  int port_ = -1;
};

StoreServer::StoreServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StoreServer::~StoreServer() = default;
int StoreServer::port() const { return impl_->port(); }

std::string StoreServer::url() const {
  return absl::StrCat("http://", impl_->address(), ":", impl_->port());
}

absl::StatusOr<std::unique_ptr<StoreServer>> StoreServer::Start(const StoreServerOptions& options) {
  if (options.secret.empty()) {
    return absl::InvalidArgumentError("a store without a secret would serve anybody");
  }
  auto impl = std::make_unique<Impl>(options);
  const absl::Status started = impl->Start();
  if (!started.ok()) return started;
  return std::unique_ptr<StoreServer>(new StoreServer(std::move(impl)));
}

std::string NewSecret() {
  std::string bytes(16, '\0');
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) std::abort();
  return absl::BytesToHexString(bytes);
}

}  // namespace pando
