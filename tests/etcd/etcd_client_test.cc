#include "sinew/rpc/membership/etcd/etcd_client.h"

#include <gmock/gmock.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdint>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/testing/eventually.h"
#include "sinew/tests/etcd/etcd_servers.h"
#include "sinew/tests/support/certificates.h"
#include "sinew/tests/support/eventual_value.h"
#include "sinew/tests/support/tcp_proxy.h"

namespace sinew::internal::etcd {
namespace {

using sinew::testing::ask;
using sinew::testing::Certificates;
using sinew::testing::EtcdServers;
using sinew::testing::eventually;
using sinew::testing::TcpProxy;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::unique_ptr<EtcdClient> client_of(EtcdOptions options) {
  auto client = EtcdClient::start(std::move(options));
  EXPECT_TRUE(client.ok()) << client.status();
  return *std::move(client);
}

pb::PutRequest put_of(const std::string& key, const std::string& value, std::int64_t lease = 0) {
  pb::PutRequest put;
  put.set_key(key);
  put.set_value(value);
  put.set_lease(lease);
  return put;
}

std::string value_of(EtcdClient& client, const std::string& key) {
  pb::RangeRequest range;
  range.set_key(key);
  const auto response = ask(client, range);
  EXPECT_TRUE(response.ok()) << response.status();
  if (!response.ok() || response->kvs().empty()) return "";
  return response->kvs(0).value();
}

/// What a watch has told, as "key=value" and "-key".
class Told {
 public:
  EtcdClient::Watcher watcher() {
    EtcdClient::Watcher watcher;
    watcher.on_events = [this](const std::vector<Event>& events) {
      MutexLock lock(mutex_);
      for (const Event& event : events) {
        std::string text = event.type() == Event::PUT
                               ? absl::StrCat(event.kv().key(), "=", event.kv().value())
                               : absl::StrCat("-", event.kv().key());
        // Another revision: a busy etcd has answered late, and was asked again.
        const std::int64_t before = std::exchange(revision_, event.kv().mod_revision());
        if (!events_.empty() && events_.back() == text && before < revision_) continue;
        events_.push_back(std::move(text));
      }
    };
    watcher.on_end = [this](absl::Status why) {
      MutexLock lock(mutex_);
      end_ = std::move(why);
    };
    return watcher;
  }
  void begin(EtcdClient& client, const std::string& key, std::int64_t revision) {
    client.post(
        [this, &client, key, revision] { client.watch(key, key + "~", revision, watcher()); });
  }
  std::vector<std::string> events() const {
    MutexLock lock(mutex_);
    return events_;
  }
  absl::Status end() const {
    MutexLock lock(mutex_);
    return end_;
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::string> events_;
  /// Of the last of them.
  std::int64_t revision_ = 0;
  absl::Status end_;
};

TEST(EtcdClientTest, PutsGetsAndLists) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(1);
  const auto client = client_of(servers.patient_options());
  for (int i = 0; i < 2500; ++i)
    client->call(put_of(absl::StrCat("k", i), "v"), seconds(60), [](auto) {});
  EXPECT_TRUE(ask(*client, put_of("k", "last"), seconds(60)).ok());
  std::promise<absl::StatusOr<EtcdClient::Listing>> listed;
  auto listing = listed.get_future();
  ASSERT_TRUE(eventually([&] { return value_of(*client, "k2499") == "v"; }));
  client->list("k", "l", seconds(20), [&](auto result) { listed.set_value(std::move(result)); });
  const auto result = listing.get();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->kvs, SizeIs(2501));
  EXPECT_GT(result->revision, 2500);
}

TEST(EtcdClientTest, LeasesAreRenewedAndEnd) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(1);
  const auto client = client_of(servers.options());
  pb::LeaseGrantRequest grant;
  grant.set_ttl(60);
  const auto lease = ask(*client, grant);
  ASSERT_TRUE(lease.ok()) << lease.status();
  ASSERT_TRUE(ask(*client, put_of("k", "v", lease->id())).ok());
  pb::LeaseKeepAliveRequest keep;
  keep.set_id(lease->id());
  EXPECT_EQ(ask(*client, keep)->ttl(), 60);
  pb::LeaseRevokeRequest revoke;
  revoke.set_id(lease->id());
  EXPECT_TRUE(ask(*client, revoke).ok());
  EXPECT_EQ(value_of(*client, "k"), "");
  EXPECT_EQ(ask(*client, keep)->ttl(), 0);
}

TEST(EtcdClientTest, AWatchGoesOnWhereItWasAfterARestart) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(1);
  const auto client = client_of(servers.options());
  Told told;
  const auto first = ask(*client, put_of("k1", "a"));
  told.begin(*client, "k", first->header().revision());
  EXPECT_EVENTUALLY(told.events(), ElementsAre("k1=a"));
  servers.kill(0);
  servers.start(0);
  EXPECT_TRUE(ask(*client, put_of("k2", "b"), seconds(60)).ok());
  EXPECT_EVENTUALLY(told.events(), ElementsAre("k1=a", "k2=b"));
  EXPECT_TRUE(told.end().ok()) << told.end();
}

TEST(EtcdClientTest, ACompactedWatchSaysSo) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(1);
  const auto client = client_of(servers.patient_options());
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(ask(*client, put_of("k", absl::StrCat(i))).ok());
  const auto last = ask(*client, put_of("k", "last"));
  pb::CompactionRequest compact;
  compact.set_revision(last->header().revision());
  ASSERT_TRUE(ask(*client, compact, seconds(60)).ok());
  Told told;
  told.begin(*client, "k", 2);
  EXPECT_TRUE(eventually([&] { return !told.end().ok(); }));
  EXPECT_EQ(told.end().code(), absl::StatusCode::kOutOfRange) << told.end();
}

TEST(EtcdClientTest, GoesOnWhenServersDieOneAfterTheOther) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(3);
  const auto client = client_of(servers.options());
  Told told;
  told.begin(*client, "k", 1);
  std::vector<std::string> expected;
  for (int server = 0; server < 3; ++server) {
    servers.kill(server);
    const auto put = ask(*client, put_of(absl::StrCat("k", server), "v"), seconds(60));
    EXPECT_TRUE(put.ok()) << put.status();
    expected.push_back(absl::StrCat("k", server, "=v"));
    EXPECT_EVENTUALLY(told.events(), ::testing::ElementsAreArray(expected));
    servers.start(server);
    servers.wait_until_served();
    ASSERT_GE(servers.leader(), 0);
  }
}

TEST(EtcdClientTest, AStoppedServerIsLeftForAnother) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(3);
  const int stopped = (servers.leader() + 1) % 3;
  EtcdOptions options = servers.options();
  options.attempt_timeout = seconds(1);
  const auto client = client_of(options);
  Told told;
  told.begin(*client, "k", 1);
  servers.process(stopped).signal(SIGSTOP);
  for (int i = 0; i < 5; ++i) {
    const auto put = ask(*client, put_of(absl::StrCat("k", i), "v"), seconds(60));
    EXPECT_TRUE(put.ok()) << put.status();
  }
  EXPECT_EVENTUALLY(told.events(), SizeIs(5));
  servers.process(stopped).signal(SIGCONT);
}

/// One that asks that server first: which one it is, each client draws.
std::unique_ptr<EtcdClient> client_at(const EtcdOptions& options, const std::string& first) {
  std::unique_ptr<EtcdClient> client;
  std::string asked;
  do {
    client = client_of(options);
    std::promise<std::string> endpoint;
    client->post([&] { endpoint.set_value(client->endpoint()); });
    asked = endpoint.get_future().get();
  } while (asked != first);
  return client;
}

TEST(EtcdClientTest, ACallThatEndsSoonerThanAServerMayTakeFindsAnother) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(1);
  EtcdServers stopped(1);
  stopped.process(0).signal(SIGSTOP);
  EtcdOptions options = servers.options();
  options.endpoints.push_back(stopped.endpoint(0));
  options.attempt_timeout = seconds(60);
  const auto client = client_at(options, stopped.endpoint(0));
  Told told;
  told.begin(*client, "k", 1);
  const auto put = ask(*client, put_of("k", "v"), seconds(10));
  EXPECT_TRUE(put.ok()) << put.status();
  EXPECT_EVENTUALLY(told.events(), ElementsAre("k=v"));
}

TEST(EtcdClientTest, AnAnswerIsHeardThoughAnotherServerWasAskedMeanwhile) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(1);
  servers.process(0).signal(SIGSTOP);
  EtcdServers stopped(1);
  stopped.process(0).signal(SIGSTOP);
  EtcdOptions options = servers.options();
  options.endpoints.push_back(stopped.endpoint(0));
  options.attempt_timeout = seconds(60);
  const auto client = client_at(options, servers.endpoint(0));
  std::promise<bool> has_answer;
  client->call(put_of("k", "v"), seconds(20),
               [&](const auto& answer) { has_answer.set_value(answer.ok()); });
  // Until the other one is asked, which is silent till the end.
  EXPECT_TRUE(eventually([&] {
    std::promise<std::string> asked;
    client->post([&] { asked.set_value(client->endpoint()); });
    return asked.get_future().get() == stopped.endpoint(0);
  }));
  servers.process(0).signal(SIGCONT);
  EXPECT_TRUE(has_answer.get_future().get());
}

TEST(EtcdClientTest, AMinorityRefuses) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(3);
  servers.kill(0);
  servers.kill(1);
  const auto client = client_of(servers.options());
  const auto put = ask(*client, put_of("k", "v"), seconds(8));
  EXPECT_EQ(put.status().code(), absl::StatusCode::kUnavailable) << put.status();
  // All three are named.
  for (const std::string& endpoint : servers.endpoints()) {
    EXPECT_THAT(std::string(put.status().message()), HasSubstr(endpoint));
  }
  servers.start(0);
  EXPECT_TRUE(ask(*client, put_of("k", "v"), seconds(60)).ok());
}

TEST(EtcdClientTest, OutOfQuotaIsSaidInWords) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(1, {"--quota-backend-bytes", "1000000"});
  const auto client = client_of(servers.options());
  absl::Status full;
  // etcd compares the size that it has last written out, so a fast client gets far over the quota.
  for (int i = 0; i < 5000 && full.ok(); ++i) {
    full = ask(*client, put_of(absl::StrCat("k", i), std::string(100000, 'x'))).status();
  }
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), HasSubstr("etcd at 127.0.0.1:"));
  EXPECT_THAT(std::string(full.message()), HasSubstr("is out of quota (NOSPACE alarm)"));
}

TEST(EtcdClientTest, UsersAndPasswords) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(1);
  EtcdOptions with_password = servers.options();
  with_password.user = "root";
  with_password.password = "right";
  const auto early = client_of(with_password);
  // As long as etcd has no users, a user is not asked for.
  EXPECT_TRUE(ask(*early, put_of("k", "1")).ok());
  const auto admin = client_of(servers.options());
  servers.require_root("right");

  const auto nobody = ask(*admin, put_of("k", "v"));
  EXPECT_EQ(nobody.status().code(), absl::StatusCode::kUnauthenticated) << nobody.status();
  EXPECT_THAT(std::string(nobody.status().message()), HasSubstr("wants a user and a password"));
  EXPECT_TRUE(ask(*early, put_of("k", "2")).ok());
  const auto right = client_of(with_password);
  EXPECT_TRUE(ask(*right, put_of("k", "3")).ok());
  Told told;
  told.begin(*right, "k", 1);
  EXPECT_EVENTUALLY(told.events(), ElementsAre("k=1", "k=2", "k=3"));
  // A token that has ended is replaced, for calls and for watches.
  servers.kill(0);
  servers.start(0);
  EXPECT_TRUE(ask(*right, put_of("k", "new"), seconds(60)).ok());
  EXPECT_EVENTUALLY(sinew::testing::last_of(told.events()),
                    ::testing::Optional(std::string("k=new")));

  EtcdOptions options = with_password;
  options.password = "wrong";
  const auto wrong = client_of(options);
  const auto refused = ask(*wrong, put_of("k", "v"));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnauthenticated) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("does not take this user and password"));
}

TEST(EtcdClientTest, Tls) {
  SINEW_NEEDS_ETCD();
  const Certificates certificates;
  const TlsFiles server = certificates.issue("server", "DNS:localhost,IP:127.0.0.1");
  const TlsFiles ours = certificates.issue("client");
  EtcdServers servers(1, {"--cert-file", server.certificate, "--key-file", server.key,
                          "--trusted-ca-file", server.ca, "--client-cert-auth"});
  EtcdOptions options = servers.options();
  options.tls = EtcdTls{ours.ca, ours.certificate, ours.key};
  EXPECT_TRUE(ask(*client_of(options), put_of("k", "v"), seconds(60)).ok());

  const TlsFiles foreign = certificates.issue("foreign", "", "other-ca");
  options.tls = EtcdTls{certificates.path("other-ca.pem"), foreign.certificate, foreign.key};
  const auto unknown = ask(*client_of(options), put_of("k", "v"), seconds(10));
  EXPECT_FALSE(unknown.ok());
  SCOPED_TRACE(unknown.status().ToString());

  options.tls.reset();
  const auto plain = ask(*client_of(options), put_of("k", "v"), seconds(5));
  EXPECT_THAT(std::string(plain.status().message()), HasSubstr("wants TLS")) << plain.status();

  options.tls = EtcdTls{"/no/such/file", "", ""};
  const auto missing = ask(*client_of(options), put_of("k", "v"));
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("/no/such/file"));
}

TEST(EtcdClientTest, WhatIsNoEtcdIsSaidAtOnce) {
  // gRPC, and no etcd.
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  const auto queue = builder.AddCompletionQueue();
  const auto server = builder.BuildAndStart();
  std::thread serves([&queue] {
    void* tag = nullptr;
    bool ok = false;
    while (queue->Next(&tag, &ok)) {
    }
  });
  EtcdOptions options;
  options.endpoints = {absl::StrCat("127.0.0.1:", port)};
  const auto answer = ask(*client_of(options), put_of("k", "v"), seconds(60));
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kNotFound) << answer.status();
  EXPECT_THAT(std::string(answer.status().message()), HasSubstr("is no etcd"));
  server->Shutdown();
  queue->Shutdown();
  serves.join();
}

TEST(EtcdClientTest, NobodyThere) {
  EtcdOptions options;
  options.endpoints = {absl::StrCat("127.0.0.1:", sinew::testing::free_port())};
  const auto answer = ask(*client_of(options), put_of("k", "v"), seconds(2));
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kUnavailable) << answer.status();
  EXPECT_THAT(std::string(answer.status().message()), HasSubstr(options.endpoints[0]));
}

TEST(EtcdClientTest, ACallThatEndsInTheMidstOfAnAttemptSaysWhatItHasFound) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(1);
  servers.process(0).signal(SIGSTOP);
  TcpProxy proxy(servers.port(0));
  proxy.reset_next(1);
  EtcdOptions options;
  options.endpoints = {absl::StrCat(TcpProxy::kHost, ":", servers.port(0))};
  options.attempt_timeout = seconds(60);
  const auto put = ask(*client_of(options), put_of("k", "v"), seconds(4));
  // The second attempt has connected, and was told nothing.
  EXPECT_EQ(proxy.resets(), 1);
  EXPECT_THAT(std::string(put.status().message()), HasSubstr("cannot be reached")) << put.status();
}

TEST(EtcdClientTest, EndsWhatIsUnderWay) {
  EtcdOptions options;
  options.endpoints = {absl::StrCat("127.0.0.1:", sinew::testing::free_port())};
  auto client = client_of(options);
  std::promise<absl::Status> ended;
  client->call(put_of("k", "v"), seconds(600),
               [&](const auto& answer) { ended.set_value(answer.status()); });
  client.reset();
  EXPECT_EQ(ended.get_future().get().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace sinew::internal::etcd
