// What only a real etcd asks for: users with passwords, and TLS.
#include "tests/dist/store/etcd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "dist/store/http_post.h"
#include "dist/store/store_client.h"

namespace pando {
namespace {

using ::testing::HasSubstr;

/// A call that the client has no need of; retried while etcd starts.
void Call(const std::string& url, const std::string& body) {
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  HttpAnswer answer;
  do {
    answer = Post({url, "", body, ""}, deadline, [](absl::string_view) { return true; });
    if (answer.error.empty()) break;
    absl::SleepFor(absl::Milliseconds(20));
  } while (absl::Now() < deadline);
  ASSERT_EQ(answer.status, 200) << url << " " << answer.error;
}

/// With a user who must give a password.
std::unique_ptr<Etcd> StartWithUsers() {
  std::unique_ptr<Etcd> etcd = Etcd::Start();
  if (etcd == nullptr) return nullptr;
  const std::string auth = etcd->url() + "/v3/auth/";
  Call(auth + "user/add", R"({"name": "root", "password": "of root"})");
  Call(auth + "role/add", R"({"name": "root"})");
  Call(auth + "user/grant", R"({"user": "root", "role": "root"})");
  Call(auth + "enable", "{}");
  return etcd;
}

TEST(EtcdTest, LetsInWhoKnowsThePassword) {
  const auto etcd = StartWithUsers();
  if (etcd == nullptr) GTEST_SKIP() << kNoEtcd;
  StoreOptions options{.endpoints = {etcd->url()}, .user = "root", .password = "of root"};
  const auto client = StoreClient::Connect(options);
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_TRUE((*client)->Put("pando/a", "b").ok());
  options.password = "wrong";
  EXPECT_THAT(std::string(StoreClient::Connect(options).status().message()),
              HasSubstr("invalid user ID or password"));
  EXPECT_FALSE(StoreClient::Connect({.endpoints = {etcd->url()}}).ok());
}

// etcd forgets whom it has let in: after minutes without a word, or when it starts anew.
TEST(EtcdTest, ComesBackWhenItIsForgotten) {
  const auto etcd = StartWithUsers();
  if (etcd == nullptr) GTEST_SKIP() << kNoEtcd;
  const StoreOptions options{.endpoints = {etcd->url()},
                             .user = "root",
                             .password = "of root",
                             .timeout = absl::Seconds(30)};
  const auto client = StoreClient::Connect(options);
  ASSERT_TRUE(client.ok()) << client.status();
  const absl::StatusOr<int64_t> lease = (*client)->GrantLease(60);
  ASSERT_TRUE(lease.ok());
  etcd->Restart();
  EXPECT_TRUE((*client)->KeepAlive(*lease).ok());
  etcd->Restart();
  const absl::Status put = (*client)->Put("pando/a", "b");
  EXPECT_TRUE(put.ok()) << put;
  etcd->Restart();
  const auto awaited = (*client)->Await("pando/a", absl::Now() + absl::Seconds(30));
  ASSERT_TRUE(awaited.ok()) << awaited.status();
  EXPECT_EQ(*awaited, "b");
  // A watch too, whose answer is a stream.
  etcd->Restart();
  const absl::Status watched =
      (*client)->Watch(KeyRange::One("pando/a"), 1, absl::Now() + absl::Seconds(30),
                       [](const StoreEvent& e) { return e.kv.value != "b"; });
  EXPECT_TRUE(watched.ok()) << watched;
}

/// A certificate for 127.0.0.1 that vouches for itself.
struct Certificate {
  Certificate()
      : folder(absl::StrCat(testing::TempDir(), "/certificate-", FreePort())),
        file(folder + "/cert.pem"),
        key(folder + "/key.pem") {
    std::filesystem::create_directories(folder);
    made = RunProgram({"openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                       "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-out",
                       file, "-keyout", key}) == 0;
  }
  ~Certificate() { std::filesystem::remove_all(folder); }
  std::string folder, file, key;
  bool made = false;
};

TEST(EtcdTest, TrustsTheCertificateThatItIsGiven) {
  const Certificate certificate;
  if (!certificate.made) GTEST_SKIP() << "there is no program openssl to make certificates";
  const auto etcd =
      Etcd::Start("https", {"--cert-file=" + certificate.file, "--key-file=" + certificate.key});
  if (etcd == nullptr) GTEST_SKIP() << kNoEtcd;
  // A member that is dead comes first.
  const std::string dead = absl::StrCat("https://127.0.0.1:", FreePort());
  StoreOptions options{
      .endpoints = {dead, etcd->url()}, .ca_file = certificate.file, .timeout = absl::Seconds(30)};
  const auto client = StoreClient::Connect(options);
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_TRUE((*client)->Put("a", "b").ok());
  EXPECT_EQ(*(*client)->Await("a", absl::Now() + absl::Seconds(30)), "b");

  options.ca_file = "";
  options.timeout = absl::Seconds(3);
  options.endpoints = {etcd->url()};
  EXPECT_THAT(std::string(StoreClient::Connect(options).status().message()),
              HasSubstr("certificate"));
}

}  // namespace
}  // namespace pando
