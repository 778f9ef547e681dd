#include "dist/store/store_client.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "dist/store/http_post.h"
#include "dist/store/json_protocol.h"
#include "engine/status.h"

namespace pando {
namespace {

// Between two rounds over all members.
constexpr absl::Duration kPause = absl::Milliseconds(50);
constexpr int kUnauthorized = 401;
constexpr char kAuthenticate[] = "/v3/auth/authenticate";

/// Whether a call may be made again though it may have been done.
enum class Repeat { kSafe, kUnsafe };

absl::StatusOr<Json> Parse(const std::string& text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) {
    return absl::InternalError("the answer is not JSON: is this a store?");
  }
  return json;
}

/// etcd's codes are gRPC's, which are Abseil's.
absl::Status ErrorOf(int http_status, const std::string& body) {
  const absl::StatusOr<Json> json = Parse(body);
  if (http_status == kUnauthorized)
    return absl::UnauthenticatedError("it does not let us in: wrong secret");
  if (!json.ok()) return absl::InternalError(absl::StrCat("HTTP status ", http_status));
  return {static_cast<absl::StatusCode>(json->value("code", 13)), json->value("message", body)};
}

}  // namespace

/// Requests to whichever member answers.
class StoreClient::Http {
 public:
  explicit Http(const StoreOptions& options) : options_(options), token_(options.secret) {}

  absl::StatusOr<Json> Call(const char* path, const Json& body, Repeat repeat) {
    const absl::Time deadline = absl::Now() + options_.timeout;
    absl::Status last;
    bool renewed = false;
    for (size_t tried = 0; absl::Now() < deadline; ++tried) {
      const size_t member = preferred_ % options_.endpoints.size();
      const std::string& endpoint = options_.endpoints[member];
      std::string text;
      // With a token that it has forgotten, etcd does not even let ask for another.
      const std::string token = path == kAuthenticate ? "" : Token();
      const HttpAnswer answer = Post({endpoint + path, token, body.dump(), options_.ca_file},
                                     deadline, [&text](absl::string_view part) {
                                       text.append(part.data(), part.size());
                                       return true;
                                     });
      if (answer.error.empty()) {
        if (answer.status == 200) return Parse(text);
        last = Named(ErrorOf(answer.status, text), endpoint);
        if (absl::IsUnauthenticated(last) && !renewed && CanAuthenticate() &&
            path != kAuthenticate) {
          renewed = true;
          PANDO_RETURN_IF_ERROR(Authenticate());
          continue;
        }
        // A member that has lost its leader says so; all other answers are the store's.
        if (last.code() != absl::StatusCode::kUnavailable) return last;
      } else {
        // That time was up at last says less than what went wrong before.
        if (last.ok() || absl::Now() < deadline) {
          last =
              absl::UnavailableError(absl::StrCat("the store at ", endpoint, ": ", answer.error));
        }
        if (repeat == Repeat::kUnsafe && answer.sent) return absl::UnknownError(last.message());
      }
      preferred_ = member + 1;
      if ((tried + 1) % options_.endpoints.size() == 0) absl::SleepFor(kPause);
    }
    return last;
  }

  /// Lines of a streamed answer, until `on_line` returns false (true is returned), the connection
  /// ends or the deadline comes.
  bool Stream(const char* path, const Json& body, absl::Time deadline,
              const std::function<bool(const std::string&)>& on_line) {
    const std::string& endpoint = options_.endpoints[preferred_ % options_.endpoints.size()];
    std::string text;
    bool stopped = false;
    const HttpAnswer answer =
        Post({endpoint + path, Token(), body.dump(), options_.ca_file}, deadline,
             [&](absl::string_view part) {
               text.append(part.data(), part.size());
               for (size_t end; !stopped && (end = text.find('\n')) != std::string::npos;) {
                 stopped = !on_line(text.substr(0, end));
                 text.erase(0, end + 1);
               }
               return !stopped;
             });
    if (!answer.error.empty() && !stopped) ++preferred_;
    // If that fails, so does the next call, which says why.
    if (answer.status == kUnauthorized && CanAuthenticate()) Authenticate().IgnoreError();
    return stopped;
  }

  bool CanAuthenticate() const { return !options_.user.empty(); }
  /// Asks for a token to say with every call. etcd forgets those that are not used for minutes, and
  /// all when it starts anew.
  absl::Status Authenticate() {
    const Json body = {{"name", options_.user}, {"password", options_.password}};
    PANDO_ASSIGN_OR_RETURN(const Json answer, Call(kAuthenticate, body, Repeat::kSafe));
    const std::lock_guard lock(mutex_);
    token_ = answer.value("token", "");
    return absl::OkStatus();
  }

  const StoreOptions& options() const { return options_; }

 private:
  std::string Token() const {
    const std::lock_guard lock(mutex_);
    return token_;
  }

  static absl::Status Named(const absl::Status& status, const std::string& endpoint) {
    return {status.code(),
            absl::StrCat("the store at ", endpoint, ": ", std::string(status.message()))};
  }

  StoreOptions options_;
  std::atomic<size_t> preferred_{0};
  mutable std::mutex mutex_;
  std::string token_;
};

absl::StatusOr<std::vector<std::string>> ParseEndpoints(const std::string& text) {
  std::vector<std::string> endpoints = absl::StrSplit(text, ',');
  for (const std::string& e : endpoints) {
    if (!absl::StartsWith(e, "http://") && !absl::StartsWith(e, "https://")) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", e, "\" is no address of a store: they look like http://10.0.0.1:2379"));
    }
  }
  return endpoints;
}

StoreClient::StoreClient(const StoreOptions& options) : http_(std::make_unique<Http>(options)) {}
StoreClient::~StoreClient() = default;

absl::StatusOr<std::unique_ptr<StoreClient>> StoreClient::Connect(const StoreOptions& options) {
  if (options.endpoints.empty()) return absl::InvalidArgumentError("no store is given");
  std::unique_ptr<StoreClient> client(new StoreClient(options));
  if (!options.user.empty()) PANDO_RETURN_IF_ERROR(client->http_->Authenticate());
  PANDO_RETURN_IF_ERROR(client->Get("pando").status());
  return client;
}

absl::Status StoreClient::Put(absl::string_view key, absl::string_view value) {
  return Put(key, value, 0);
}

absl::Status StoreClient::Put(absl::string_view key, absl::string_view value, int64_t lease) {
  const Json body =
      ToJson(Operation::Put(std::string(key), std::string(value), lease)).at("request_put");
  return http_->Call("/v3/kv/put", body, Repeat::kSafe).status();
}

absl::StatusOr<std::vector<KeyValue>> StoreClient::List(const KeyRange& range, int64_t* revision) {
  PANDO_ASSIGN_OR_RETURN(const Json answer,
                         http_->Call("/v3/kv/range", ToJson(range), Repeat::kSafe));
  if (revision != nullptr) *revision = IntField(answer.at("header"), "revision");
  return OperationResultFrom(Json{{"response_range", answer}}).found;
}

absl::StatusOr<std::optional<KeyValue>> StoreClient::Get(const std::string& key) {
  PANDO_ASSIGN_OR_RETURN(std::vector<KeyValue> found, List(KeyRange::One(key)));
  return found.empty() ? std::nullopt : std::optional<KeyValue>(std::move(found[0]));
}

absl::StatusOr<int64_t> StoreClient::Delete(const KeyRange& range) {
  PANDO_ASSIGN_OR_RETURN(const Json answer,
                         http_->Call("/v3/kv/deleterange", ToJson(range), Repeat::kSafe));
  return IntField(answer, "deleted");
}

absl::StatusOr<TxnResult> StoreClient::Txn(const std::vector<Compare>& conditions,
                                           const std::vector<Operation>& then,
                                           const std::vector<Operation>& otherwise) {
  Json body = Json::object();
  for (const Compare& c : conditions) body["compare"].push_back(ToJson(c));
  for (const Operation& o : then) body["success"].push_back(ToJson(o));
  for (const Operation& o : otherwise) body["failure"].push_back(ToJson(o));
  PANDO_ASSIGN_OR_RETURN(const Json answer, http_->Call("/v3/kv/txn", body, Repeat::kUnsafe));
  TxnResult result;
  result.revision = IntField(answer.at("header"), "revision");
  result.succeeded = answer.value("succeeded", false);
  for (const Json& r : answer.value("responses", Json::array())) {
    result.results.push_back(OperationResultFrom(r));
  }
  return result;
}

absl::StatusOr<int64_t> StoreClient::GrantLease(int64_t ttl) {
  PANDO_ASSIGN_OR_RETURN(const Json answer,
                         http_->Call("/v3/lease/grant", {{"TTL", ToInt(ttl)}}, Repeat::kSafe));
  return IntField(answer, "ID");
}

absl::Status StoreClient::KeepAlive(int64_t lease) {
  // etcd's answer is a stream that it is slow to end: its first line says all.
  const absl::Time deadline = absl::Now() + http_->options().timeout;
  int64_t ttl = 0;
  const auto on_line = [&ttl](const std::string& line) {
    const absl::StatusOr<Json> json = Parse(line);
    if (json.ok()) ttl = IntField(json->value("result", Json::object()), "TTL");
    return false;
  };
  while (!http_->Stream("/v3/lease/keepalive", {{"ID", ToInt(lease)}}, deadline, on_line)) {
    if (absl::Now() >= deadline) return absl::UnavailableError("the store does not answer");
    absl::SleepFor(kPause);
  }
  if (ttl > 0) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("lease ", lease, " has ended"));
}

absl::Status StoreClient::RevokeLease(int64_t lease) {
  return http_->Call("/v3/lease/revoke", {{"ID", ToInt(lease)}}, Repeat::kUnsafe).status();
}

absl::Status StoreClient::Watch(const KeyRange& range, int64_t from, absl::Time deadline,
                                const std::function<bool(const StoreEvent&)>& on_event) {
  absl::Status failed;
  bool forgotten = false;
  if (from == 0) {
    PANDO_RETURN_IF_ERROR(List(range, &from).status());
    ++from;
  }
  const auto on_line = [&](const std::string& line) {
    const absl::StatusOr<Json> json = Parse(line);
    if (!json.ok()) {
      failed = json.status();
      return false;
    }
    const Json result = json->value("result", Json::object());
    if (result.value("canceled", false)) {
      const std::string reason = result.value("cancel_reason", "");
      // A closing store is one that may come back.
      if (absl::StrContains(reason, "closing")) return true;
      forgotten = absl::StrContains(reason, "Unauthenticated") && http_->CanAuthenticate();
      if (!forgotten) failed = absl::OutOfRangeError(reason);
      return false;
    }
    for (const Json& e : result.value("events", Json::array())) {
      const StoreEvent event = StoreEventFrom(e);
      from = std::max(from, event.kv.mod_revision + 1);
      if (!on_event(event)) return false;
    }
    return true;
  };
  while (absl::Now() < deadline) {
    Json create = ToJson(range);
    create["start_revision"] = ToInt(from);
    if (http_->Stream("/v3/watch", {{"create_request", create}}, deadline, on_line)) {
      if (!forgotten) return failed;
      forgotten = false;
      PANDO_RETURN_IF_ERROR(http_->Authenticate());
    }
    if (absl::Now() < deadline) absl::SleepFor(kPause);
  }
  return absl::DeadlineExceededError("nothing more happened in time");
}

absl::StatusOr<std::string> StoreClient::Await(absl::string_view key, absl::Time deadline) {
  const KeyRange range = KeyRange::One(std::string(key));
  int64_t revision = 0;
  PANDO_ASSIGN_OR_RETURN(const std::vector<KeyValue> found, List(range, &revision));
  if (!found.empty()) return found[0].value;
  std::string value;
  const absl::Status watched = Watch(range, revision + 1, deadline, [&](const StoreEvent& event) {
    if (event.deleted) return true;
    value = event.kv.value;
    return false;
  });
  if (absl::IsDeadlineExceeded(watched)) {
    return absl::DeadlineExceededError(absl::StrCat("nobody has put ", range.key, " in time"));
  }
  if (!watched.ok()) return watched;
  return value;
}

}  // namespace pando
