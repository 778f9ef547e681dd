// The store's client, against the embedded server and against a real etcd, which must not differ.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "dist/store/store_client.h"
#include "dist/store/store_server.h"
#include "tests/dist/store/etcd.h"

namespace pando {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A store to test on.
class Host {
 public:
  virtual ~Host() = default;
  virtual StoreOptions options() const = 0;
};

class Embedded : public Host {
 public:
  Embedded() : server_(*StoreServer::Start({.secret = "a secret"})) {}
  StoreOptions options() const override {
    return {.endpoints = {server_->url()}, .secret = "a secret"};
  }
  int port() const { return server_->port(); }

 private:
  std::unique_ptr<StoreServer> server_;
};

class RealEtcd : public Host {
 public:
  /// None where etcd is not installed.
  static std::unique_ptr<RealEtcd> Start() {
    std::unique_ptr<RealEtcd> host(new RealEtcd);
    host->etcd_ = Etcd::Start();
    return host->etcd_ == nullptr ? nullptr : std::move(host);
  }
  StoreOptions options() const override {
    return {.endpoints = {etcd_->url()}, .timeout = absl::Seconds(30)};
  }

 private:
  std::unique_ptr<Etcd> etcd_;
};

class StoreTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "embedded") {
      host_ = std::make_unique<Embedded>();
    } else {
      host_ = RealEtcd::Start();
      if (host_ == nullptr) GTEST_SKIP() << kNoEtcd;
    }
    auto client = StoreClient::Connect(host_->options());
    ASSERT_TRUE(client.ok()) << client.status();
    store_ = *std::move(client);
  }

  std::string ValueOf(const std::string& key) {
    const auto kv = store_->Get(key);
    EXPECT_TRUE(kv.ok()) << kv.status();
    return kv.ok() && *kv ? (*kv)->value : "(none)";
  }

  std::unique_ptr<Host> host_;
  std::unique_ptr<StoreClient> store_;
};

INSTANTIATE_TEST_SUITE_P(Stores, StoreTest, testing::Values("embedded", "etcd"),
                         [](const auto& info) { return info.param; });

TEST_P(StoreTest, KeysAndRanges) {
  EXPECT_EQ(ValueOf("a"), "(none)");
  const std::string bytes("\0\xFF\n\"", 4);
  ASSERT_TRUE(store_->Put("a/1", bytes).ok());
  ASSERT_TRUE(store_->Put("a/2", "").ok());
  ASSERT_TRUE(store_->Put("a/\xFF", std::string(100000, 'x')).ok());
  ASSERT_TRUE(store_->Put("b", "other").ok());
  EXPECT_EQ(ValueOf("a/1"), bytes);
  EXPECT_EQ(ValueOf("a/2"), "");
  int64_t revision = 0;
  const auto list = store_->List(KeyRange::Prefix("a/"), &revision);
  ASSERT_TRUE(list.ok());
  std::vector<std::string> keys;
  for (const KeyValue& kv : *list) keys.push_back(kv.key);
  EXPECT_THAT(keys, ElementsAre("a/1", "a/2", "a/\xFF"));
  EXPECT_EQ((*list)[2].value.size(), 100000U);
  EXPECT_EQ((*list)[0].version, 1);
  EXPECT_EQ((*list)[0].create_revision, (*list)[0].mod_revision);
  EXPECT_EQ(revision, (*list)[2].mod_revision + 1);
  ASSERT_TRUE(store_->Put("a/1", "new").ok());
  const auto changed = store_->Get("a/1");
  EXPECT_EQ((*changed)->version, 2);
  EXPECT_EQ((*changed)->mod_revision, revision + 1);
  EXPECT_EQ(*store_->Delete(KeyRange::Prefix("a/")), 3);
  EXPECT_EQ(*store_->Delete(KeyRange::One("a/1")), 0);
  EXPECT_EQ(ValueOf("a/1"), "(none)");
  EXPECT_EQ(ValueOf("b"), "other");
}

TEST_P(StoreTest, TransactionsCompareAndSet) {
  const auto first = store_->Txn({Compare::Absent("k")}, {Operation::Put("k", "1")});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(first->succeeded);
  const auto second = store_->Txn({Compare::Absent("k")}, {Operation::Put("k", "2")},
                                  {Operation::Range(KeyRange::One("k"))});
  EXPECT_FALSE(second->succeeded);
  ASSERT_EQ(second->results.size(), 1U);
  EXPECT_EQ(second->results[0].found.at(0).value, "1");
  const int64_t revision = second->results[0].found[0].create_revision;
  EXPECT_TRUE(store_
                  ->Txn({Compare::Created("k", revision)},
                        {Operation::Put("k", "3"), Operation::Put("l", "4")})
                  ->succeeded);
  EXPECT_FALSE(
      store_->Txn({Compare::Modified("k", revision)}, {Operation::Put("k", "5")})->succeeded);
  Compare value{.key = "k", .target = Compare::Target::kValue, .value = "3"};
  EXPECT_TRUE(store_->Txn({value}, {Operation::Delete(KeyRange::Prefix("k"))})->succeeded);
  EXPECT_FALSE(store_->Txn({value}, {Operation::Put("k", "6")})->succeeded);
  EXPECT_EQ(ValueOf("l"), "4");
}

// Eight threads each add 1, by compare and set, twenty times.
TEST_P(StoreTest, ConcurrentAdditionsCountExactly) {
  ASSERT_TRUE(store_->Put("n", "0").ok());
  std::vector<std::thread> threads;
  threads.reserve(8);
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int done = 0; done < 20;) {
        const auto now = store_->Get("n");
        ASSERT_TRUE(now.ok()) << now.status();
        const auto set =
            store_->Txn({Compare::Modified("n", (*now)->mod_revision)},
                        {Operation::Put("n", absl::StrCat(std::stoi((*now)->value) + 1))});
        ASSERT_TRUE(set.ok()) << set.status();
        if (set->succeeded) ++done;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(ValueOf("n"), "160");
}

TEST_P(StoreTest, LeasesTakeTheirKeysWithThem) {
  const auto kept = store_->GrantLease(2), left = store_->GrantLease(2);
  ASSERT_TRUE(kept.ok() && left.ok());
  ASSERT_TRUE(store_->Put("kept", "1", *kept).ok());
  ASSERT_TRUE(store_->Put("left", "1", *left).ok());
  // Until the other one is gone, this one is kept.
  const absl::Time end = absl::Now() + absl::Seconds(60);
  std::atomic<bool> gone{false};
  std::thread keeper([&] {
    while (!gone && absl::Now() < end) {
      EXPECT_TRUE(store_->KeepAlive(*kept).ok());
      absl::SleepFor(absl::Milliseconds(200));
    }
  });
  const absl::Status watched =
      store_->Watch(KeyRange::One("left"), 1, end, [](const StoreEvent& e) { return !e.deleted; });
  gone = true;
  keeper.join();
  EXPECT_TRUE(watched.ok()) << watched;
  EXPECT_EQ(ValueOf("left"), "(none)");
  EXPECT_EQ(ValueOf("kept"), "1");
  EXPECT_TRUE(absl::IsNotFound(store_->KeepAlive(*left)));
  EXPECT_TRUE(store_->RevokeLease(*kept).ok());
  EXPECT_EQ(ValueOf("kept"), "(none)");
  const absl::Status refused = store_->Put("x", "1", *kept);
  EXPECT_TRUE(absl::IsNotFound(refused)) << refused;
}

TEST_P(StoreTest, WatchesSeeEveryChangeOnceInOrder) {
  ASSERT_TRUE(store_->Put("w/0", "0").ok());
  const int64_t from = (*store_->Get("w/0"))->mod_revision;
  std::vector<std::string> seen[3];
  std::vector<std::thread> watchers;
  watchers.reserve(3);
  for (auto& s : seen) {
    watchers.emplace_back([&, from] {
      const absl::Status status = store_->Watch(
          KeyRange::Prefix("w/"), from, absl::Now() + absl::Seconds(60), [&](const StoreEvent& e) {
            s.push_back(absl::StrCat(e.kv.key, e.deleted ? " gone" : " " + e.kv.value));
            return e.kv.key != "w/end";
          });
      EXPECT_TRUE(status.ok()) << status;
    });
  }
  std::vector<std::string> want = {"w/0 0"};
  for (int i = 1; i < 30; ++i) {
    ASSERT_TRUE(store_->Put(absl::StrCat("w/", i % 3), absl::StrCat(i)).ok());
    ASSERT_TRUE(store_->Put("other", "x").ok());
    want.push_back(absl::StrCat("w/", i % 3, " ", i));
  }
  ASSERT_TRUE(store_->Delete(KeyRange::One("w/1")).ok());
  ASSERT_TRUE(store_->Put("w/end", "").ok());
  want.emplace_back("w/1 gone");
  want.emplace_back("w/end ");
  for (std::thread& t : watchers) t.join();
  for (const auto& s : seen) EXPECT_EQ(s, want);
}

TEST_P(StoreTest, AwaitsAKey) {
  std::thread putter([&] {
    absl::SleepFor(absl::Milliseconds(100));
    EXPECT_TRUE(store_->Put("late", "here").ok());
  });
  const auto value = store_->Await("late", absl::Now() + absl::Seconds(60));
  putter.join();
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(*value, "here");
  EXPECT_EQ(*store_->Await("late", absl::Now() + absl::Seconds(60)), "here");
  const auto never = store_->Await("never", absl::Now() + absl::Milliseconds(300));
  EXPECT_TRUE(absl::IsDeadlineExceeded(never.status())) << never.status();
  EXPECT_THAT(std::string(never.status().message()), HasSubstr("never"));
}

TEST_P(StoreTest, GoesOnWithAnotherMember) {
  StoreOptions options = host_->options();
  options.endpoints.insert(options.endpoints.begin(),
                           absl::StrCat("http://127.0.0.1:", FreePort()));
  const auto client = StoreClient::Connect(options);
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_TRUE((*client)->Put("a", "b").ok());
  EXPECT_EQ(*(*client)->Await("a", absl::Now() + absl::Seconds(30)), "b");
}

TEST(StoreClientTest, SaysThatNobodyAnswers) {
  const auto client =
      StoreClient::Connect({.endpoints = {absl::StrCat("http://127.0.0.1:", FreePort())},
                            .timeout = absl::Milliseconds(300)});
  EXPECT_TRUE(absl::IsUnavailable(client.status())) << client.status();
  EXPECT_THAT(std::string(client.status().message()), HasSubstr("127.0.0.1"));
  EXPECT_FALSE(ParseEndpoints("10.0.0.1:2379").ok());
  EXPECT_EQ(ParseEndpoints("http://a:1,https://b:2")->size(), 2U);
}

TEST(StoreServerTest, RefusesThoseWithoutTheSecret) {
  const Embedded host;
  for (const char* secret : {"", "a secreT", "a secret and more"}) {
    StoreOptions options = host.options();
    options.secret = secret;
    const auto client = StoreClient::Connect(options);
    EXPECT_TRUE(absl::IsUnauthenticated(client.status())) << client.status();
  }
  EXPECT_FALSE(StoreServer::Start({}).ok());
  EXPECT_NE(NewSecret(), NewSecret());
}

TEST(StoreServerTest, SaysThatAPortIsTaken) {
  const Embedded host;
  const auto second = StoreServer::Start({.port = host.port(), .secret = "s"});
  EXPECT_TRUE(absl::IsUnavailable(second.status())) << second.status();
}

/// A connection that says `text` and, unless `hold`, goes.
int Say(int port, const std::string& text) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(send(fd, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  return fd;
}

TEST(StoreServerTest, GarbageDoesNoHarm) {
  const Embedded host;
  const auto store = *StoreClient::Connect(host.options());
  std::vector<int> held;
  const std::string with_secret = "\r\nAuthorization: a secret\r\nContent-Length: ";
  for (const std::string& text :
       {std::string("\0\1\2garbage\r\n\r\n", 14), std::string(20000, 'A'),
        std::string("POST /v3/kv/put HTTP/1.1\r\n"),
        "POST /v3/kv/put HTTP/1.1" + with_secret + "9999999999\r\n\r\n",
        "POST /v3/kv/put HTTP/1.1" + with_secret + "5\r\n\r\n{\"a\":",
        "POST /v3/kv/put HTTP/1.1" + with_secret + "13\r\n\r\n{\"key\": \"%%\"}",
        "POST /v3/kv/range HTTP/1.1" + with_secret + "2\r\n\r\n{}",
        "POST /v3/watch HTTP/1.1" + with_secret + "2\r\n\r\n{}",
        "POST /v3/kv/txn HTTP/1.1" + with_secret + "14\r\n\r\n{\"compare\": 3}"}) {
    held.push_back(Say(host.port(), text));
    close(Say(host.port(), text));
    EXPECT_TRUE(store->Put("still", "here").ok());
  }
  EXPECT_EQ((*store->Get("still"))->version, 9);
  for (const int fd : held) close(fd);
}

TEST(StoreServerTest, EndsWhileWatched) {
  auto host = std::make_unique<Embedded>();
  const auto store = *StoreClient::Connect(host->options());
  std::thread watcher([&] {
    EXPECT_FALSE(store
                     ->Watch(KeyRange::One("a"), 0, absl::Now() + absl::Seconds(2),
                             [](const StoreEvent&) { return true; })
                     .ok());
  });
  absl::SleepFor(absl::Milliseconds(200));
  host = nullptr;
  watcher.join();
}

}  // namespace
}  // namespace pando
