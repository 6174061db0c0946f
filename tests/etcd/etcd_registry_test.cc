#include "sinew/rpc/membership/etcd/etcd_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sinew/testing/eventually.h"
#include "sinew/tests/etcd/etcd_servers.h"
#include "sinew/tests/etcd/registry_worker.h"
#include "sinew/tests/support/eventual_value.h"
#include "sinew/tests/support/tcp_proxy.h"

namespace sinew::internal::etcd {
namespace {

using sinew::testing::ask;
using sinew::testing::EtcdServers;
using sinew::testing::eventually;
using sinew::testing::RegistryWorker;
using sinew::testing::TcpProxy;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Workers = std::vector<std::unique_ptr<RegistryWorker>>;

/// For tests that wait until leases end. Others have one that a busy etcd does not let end.
constexpr seconds kShortLease{6};

EtcdRegistry::Options with_lease(EtcdRegistry::Options options, Time lease) {
  options.lease = lease;
  return options;
}

std::unique_ptr<RegistryWorker> join(const EtcdServers& servers, const std::string& name,
                                     Time lease = RegistryWorker::kLease) {
  auto worker = std::make_unique<RegistryWorker>(servers.options(),
                                                 with_lease(RegistryWorker::options(name), lease));
  EXPECT_TRUE(eventually([&] { return worker->is_member(); })) << worker->why();
  return worker;
}

Workers join_all(const EtcdServers& servers, const std::vector<std::string>& names,
                 Time lease = RegistryWorker::kLease) {
  Workers workers;
  for (const std::string& name : names) workers.push_back(join(servers, name, lease));
  for (const auto& worker : workers) {
    EXPECT_EVENTUALLY(worker->names(), ::testing::ElementsAreArray(names));
  }
  return workers;
}

/// The way to the first server by a TcpProxy.
EtcdOptions through_proxy(const EtcdServers& servers) {
  EtcdOptions options = servers.options();
  options.endpoints = {absl::StrCat(TcpProxy::kHost, ":", servers.port(0))};
  return options;
}

/// None has been lost or has left, as anybody sees it.
void expect_all_there(const Workers& workers) {
  for (const auto& worker : workers) {
    for (const std::string& news : worker->news()) EXPECT_EQ(news[0], '+') << news;
    EXPECT_TRUE(eventually([&] { return worker->is_member(); })) << worker->why();
    EXPECT_EVENTUALLY(worker->names(), ::testing::SizeIs(workers.size()));
  }
}

/// Though etcd may be slow to answer on a busy host: a gather that fails for that is none, and who
/// tries again meets those who wait.
void expect_barrier(const Workers& workers, const std::string& key) {
  const std::vector<std::string> names = workers[0]->names();
  std::vector<std::future<RegistryWorker::Values>> ends;
  for (const auto& worker : workers) ends.push_back(worker->gather(key, names, ""));
  std::vector<absl::Status> statuses(workers.size(), absl::UnknownError("it has not ended"));
  const auto all_have_ended = [&] {
    for (std::size_t i = 0; i < ends.size(); ++i) {
      if (!ends[i].valid() || ends[i].wait_for(seconds(0)) != std::future_status::ready) continue;
      statuses[i] = ends[i].get().status();
      if (registry::is_away(statuses[i])) ends[i] = workers[i]->gather(key, names, "");
    }
    return std::none_of(ends.begin(), ends.end(), [](const auto& end) { return end.valid(); });
  };
  eventually(all_have_ended, seconds(90));
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

TEST(EtcdRegistryTest, WorkersJoinAndLeave) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(1);
  Workers workers = join_all(servers, {"a", "b", "c"});
  EXPECT_EQ(workers[0]->self().worker.rank, 0);
  EXPECT_EQ(workers[2]->self().worker.rank, 2);
  EXPECT_EQ(workers[0]->registry().view().instance, workers[2]->registry().view().instance);
  EXPECT_THAT(workers[2]->news(), ::testing::UnorderedElementsAre("+a", "+b"));
  workers[1]->registry().leave();
  EXPECT_EVENTUALLY(workers[1]->state(), MembershipState::kLeft);
  EXPECT_TRUE(workers[1]->why().ok()) << workers[1]->why();
  for (const int i : {0, 2}) {
    EXPECT_EVENTUALLY(workers[static_cast<std::size_t>(i)]->news(),
                      Contains("-b (1: it has left)"));
  }
  // The lowest free rank.
  const auto next = join(servers, "d");
  EXPECT_EQ(next->self().worker.rank, 1);
}

TEST(EtcdRegistryTest, TheLastOneLeavesNothingBehind) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(1);
  const auto first = join(servers, "a");
  const JobInstance instance = first->registry().view().instance;
  first->registry().leave();
  EXPECT_EVENTUALLY(first->state(), MembershipState::kLeft);
  // At once: long before the lease of those who have gone without a word would end.
  const auto second = join(servers, "a");
  EXPECT_NE(second->registry().view().instance, instance);
  EXPECT_THAT(second->names(), ElementsAre("a"));
}

TEST(EtcdRegistryTest, WhoEndsWithoutAWordIsLost) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(1);
  Workers workers = join_all(servers, {"a", "b"}, kShortLease);
  workers.pop_back();
  EXPECT_EVENTUALLY(workers[0]->news(), Contains(HasSubstr("-b (3: its lease at etcd has ended)")));
  EXPECT_THAT(workers[0]->names(), ElementsAre("a"));
}

TEST(EtcdRegistryTest, AJobOfTheDeadIsFoundedAnew) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(1);
  auto first = join(servers, "a", kShortLease);
  const JobInstance instance = first->registry().view().instance;
  first.reset();
  const auto second = join(servers, "a");
  EXPECT_NE(second->registry().view().instance, instance);
}

TEST(EtcdRegistryTest, AFixedWorldWaitsForAll) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(1);
  RegistryWorker zero(servers.options(), RegistryWorker::options("zero", 0, 3));
  RegistryWorker one(servers.options(), RegistryWorker::options("one", 1, 3));
  EXPECT_EVENTUALLY(one.names(), ElementsAre("one", "zero"));
  EXPECT_EQ(one.state(), MembershipState::kJoining);
  EXPECT_THAT(one.news(), IsEmpty());
  auto two = std::make_unique<RegistryWorker>(
      servers.options(), with_lease(RegistryWorker::options("two", 2, 3), kShortLease));
  for (RegistryWorker* worker : {&zero, &one, two.get()}) {
    EXPECT_TRUE(eventually([&] { return worker->is_member(); })) << worker->why();
  }
  EXPECT_THAT(one.news(), ::testing::UnorderedElementsAre("+zero", "+two"));
  // Whoever takes a place in it later does not wait.
  two.reset();
  EXPECT_EVENTUALLY(one.news(), Contains(HasSubstr("-two")));
  RegistryWorker again(servers.options(), RegistryWorker::options("again", 2, 3));
  EXPECT_TRUE(eventually([&] { return again.is_member(); })) << again.why();
}

TEST(EtcdRegistryTest, WhoIsMissingIsNamed) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(1);
  auto options = RegistryWorker::options("zero", 0, 3);
  options.join_for = seconds(5);
  RegistryWorker zero(servers.options(), options);
  EXPECT_EVENTUALLY(zero.state(), MembershipState::kLeft);
  EXPECT_EQ(zero.why().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(zero.why().message()), HasSubstr("rank 1, 2 of 3 has not come"))
      << zero.why();
}

TEST(EtcdRegistryTest, ATakenNameIsRefusedWhileItsHolderLives) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(1);
  auto first = join(servers, "a", kShortLease);
  RegistryWorker second(servers, "a");
  EXPECT_EVENTUALLY(second.state(), MembershipState::kLeft);
  EXPECT_EQ(second.why().code(), absl::StatusCode::kAlreadyExists) << second.why();
  EXPECT_THAT(std::string(second.why().message()), HasSubstr("there is a worker 'a' already"));
  first.reset();
  RegistryWorker third(servers, "a");
  EXPECT_TRUE(eventually([&] { return third.is_member(); })) << third.why();
}

TEST(EtcdRegistryTest, APrefixOfAnotherJobIsRefused) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(1);
  const auto first = join(servers, "a");
  auto options = RegistryWorker::options("b");
  options.wanted.job = "another";
  RegistryWorker second(servers.options(), options);
  EXPECT_EVENTUALLY(second.state(), MembershipState::kLeft);
  EXPECT_EQ(second.why().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.why().message()),
              HasSubstr("under /test/ etcd has keys of another job"))
      << second.why();
}

TEST(EtcdRegistryTest, GathersBringAllValues) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(1);
  const Workers workers = join_all(servers, {"a", "b", "c"});
  auto a = workers[0]->gather("g", {"a", "b", "c"}, "of a");
  auto c = workers[2]->gather("g", {"c", "b", "a"}, "of c");
  auto all = workers[2]->gather("all", {}, "c");
  auto b = workers[1]->gather("g", {"a", "b", "c"}, "of b");
  EXPECT_THAT(*a.get(), ElementsAre("of a", "of b", "of c"));
  EXPECT_THAT(*b.get(), ElementsAre("of a", "of b", "of c"));
  EXPECT_THAT(*c.get(), ElementsAre("of a", "of b", "of c"));
  // No names: all members.
  auto all_a = workers[0]->gather("all", {}, "a");
  workers[1]->registry().leave();
  EXPECT_THAT(*all.get(), ElementsAre("a", "c"));
  EXPECT_THAT(*all_a.get(), ElementsAre("a", "c"));
}

TEST(EtcdRegistryTest, GathersNameWhoDoesNotCome) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(1);
  Workers workers = join_all(servers, {"a", "b"});
  workers.push_back(join(servers, "c", kShortLease));
  const auto late = workers[0]->gather("late", {"a", "b", "c"}, "", seconds(1)).get();
  EXPECT_EQ(late.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(late.status().message()),
              HasSubstr("'b', 'c' had not come to gather 'late'"));
  auto a = workers[0]->gather("lost", {"a", "b", "c"}, "");
  auto b = workers[1]->gather("lost", {"a", "b", "c"}, "");
  workers.pop_back();
  for (auto* end : {&a, &b}) {
    const auto values = end->get();
    EXPECT_EQ(values.status().code(), absl::StatusCode::kUnavailable) << values.status();
    EXPECT_THAT(std::string(values.status().message()),
                HasSubstr("worker 'c' is not in the job any more"));
  }
  const auto stranger = workers[0]->gather("stranger", {"a", "z"}, "").get();
  EXPECT_THAT(std::string(stranger.status().message()), HasSubstr("'z'"));
  const auto large = workers[0]->gather("large", {"a"}, std::string(2 << 20, 'x')).get();
  EXPECT_EQ(large.status().code(), absl::StatusCode::kInvalidArgument) << large.status();
}

TEST(EtcdRegistryTest, ACompleteGatherIsCompleteForWhoAsksLater) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(1);
  Workers workers = join_all(servers, {"a", "b"});
  auto b = workers[1]->gather("g", {"a", "b"}, "of b");
  EXPECT_TRUE(workers[0]->gather("g", {"a", "b"}, "of a").get().ok());
  EXPECT_TRUE(b.get().ok());
  workers.pop_back();
  EXPECT_THAT(*workers[0]->gather("g", {"a", "b"}, "of a").get(), ElementsAre("of a", "of b"));
}

TEST(EtcdRegistryTest, OfTwoThatHaveLostEachOtherTheHigherRankGoes) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(1);
  const Workers workers = join_all(servers, {"a", "b", "c"});
  const auto id = [&](int i) {
    return workers[static_cast<std::size_t>(i)]->self().worker.incarnation;
  };
  workers[2]->registry().report_lost(id(0), "no way", false);
  // One word is not enough.
  EXPECT_FALSE(
      eventually([&] { return !workers[2]->is_member() || !workers[0]->is_member(); }, seconds(2)));
  workers[0]->registry().report_lost(id(2), "no way", false);
  EXPECT_EVENTUALLY(workers[2]->state(), MembershipState::kEvicted);
  EXPECT_THAT(std::string(workers[2]->why().message()),
              HasSubstr("it and worker 'a' have lost each other"));
  EXPECT_EVENTUALLY(workers[1]->names(), ElementsAre("a", "b"));
  EXPECT_TRUE(workers[0]->is_member());
}

TEST(EtcdRegistryTest, WhoseProcessHasEndedIsGoneAtOnce) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(1);
  Workers workers = join_all(servers, {"a", "b", "c"});
  const Incarnation lost = workers[2]->self().worker.incarnation;
  workers.pop_back();
  workers[0]->registry().report_lost(lost, "its process has ended", true);
  EXPECT_EVENTUALLY(workers[1]->news(), Contains("-c (2: its process has ended)"));
}

// --- Faults of etcd -----------------------------------------------------------------------------

TEST(EtcdRegistryTest, GoesOnWhileAServerAndTheLeaderAreKilled) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(3);
  Workers workers = join_all(servers, {"a", "b"});
  const int leader = servers.leader();
  for (const int killed : {(leader + 1) % 3, leader}) {
    servers.kill(killed);
    workers.push_back(join(servers, absl::StrCat("j", killed)));
    EXPECT_EVENTUALLY(workers[0]->names(), ::testing::SizeIs(3));
    expect_barrier(workers, absl::StrCat("while ", killed));
    workers.back()->registry().leave();
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EVENTUALLY(workers[i]->names(), ElementsAre("a", "b"));
      EXPECT_THAT(workers[i]->news(), Contains(absl::StrCat("-j", killed, " (1: it has left)")));
      EXPECT_THAT(workers[i]->news(), Not(Contains(HasSubstr("lease"))));
    }
    workers.pop_back();
    servers.start(killed);
    ASSERT_GE(servers.leader(), 0);
  }
}

TEST(EtcdRegistryTest, CompactionIsSurvived) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(1);
  const auto a = join(servers, "a");
  TcpProxy proxy(servers.port(0));
  const EtcdOptions through = through_proxy(servers);
  RegistryWorker b(through, with_lease(RegistryWorker::options("b"), seconds(60)));
  EXPECT_EVENTUALLY(b.names(), ElementsAre("a", "b"));
  proxy.refuse();
  auto c = join(servers, "c");
  const auto d = join(servers, "d");
  c->registry().leave();
  EXPECT_EVENTUALLY(a->names(), ElementsAre("a", "b", "d"));
  const auto client = *EtcdClient::start(servers.patient_options());
  pb::PutRequest put;
  put.set_key("/elsewhere");
  const auto last = ask(*client, put);
  pb::CompactionRequest compact;
  compact.set_revision(last->header().revision());
  ASSERT_TRUE(ask(*client, compact, seconds(60)).ok());
  proxy.pass();
  EXPECT_EVENTUALLY(b.names(), ElementsAre("a", "b", "d"));
  EXPECT_THAT(b.news(), ElementsAre("+a", "+d"));
  // And what comes then is heard too.
  d->registry().leave();
  EXPECT_EVENTUALLY(b.news(), Contains("-d (1: it has left)"));
}

TEST(EtcdRegistryTest, SlowForThreeSeconds) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(1);
  Workers workers = join_all(servers, {"a", "b"}, kShortLease);
  servers.process(0).signal(SIGSTOP);
  auto late = std::make_unique<RegistryWorker>(
      servers.options(), with_lease(RegistryWorker::options("c"), kShortLease));
  EXPECT_FALSE(eventually([&] { return late->is_member(); }, seconds(3)));
  servers.process(0).signal(SIGCONT);
  workers.push_back(std::move(late));
  EXPECT_TRUE(eventually([&] { return workers[2]->is_member(); })) << workers[2]->why();
  EXPECT_EVENTUALLY(workers[0]->names(), ElementsAre("a", "b", "c"));
  expect_all_there(workers);
  expect_barrier(workers, "after");
}

void away_and_back(EtcdServers& servers, const std::function<void()>& leave,
                   const std::function<void()>& come_back) {
  Workers workers = join_all(servers, {"a", "b", "c"}, kShortLease);
  const JobInstance instance = workers[0]->registry().view().instance;
  // What all come to at the end of a job outlasts it.
  constexpr seconds kLong{120};
  std::vector<std::future<RegistryWorker::Values>> ends;
  ends.push_back(workers[0]->gather("end", {}, "", kLong));
  leave();
  for (const auto& worker : workers)
    EXPECT_EVENTUALLY(worker->state(), MembershipState::kSuspected);
  const auto gather = workers[0]->gather("away", {"a", "b"}, "").get();
  EXPECT_EQ(gather.status().code(), absl::StatusCode::kUnavailable) << gather.status();
  EXPECT_THAT(std::string(gather.status().message()), HasSubstr("etcd at 127.0.0.1:"));
  ends.push_back(workers[1]->gather("end", {}, "", kLong));
  auto late = std::make_unique<RegistryWorker>(
      servers.options(), with_lease(RegistryWorker::options("d"), kShortLease));
  // Longer than the lease.
  EXPECT_FALSE(eventually([&] { return late->is_member(); }, seconds(9)));
  for (const auto& worker : workers) {
    EXPECT_EQ(worker->names().size(), 3u);
    for (const std::string& news : worker->news()) EXPECT_EQ(news[0], '+') << news;
  }
  come_back();
  workers.push_back(std::move(late));
  EXPECT_TRUE(eventually([&] { return workers[3]->is_member(); })) << workers[3]->why();
  EXPECT_EVENTUALLY(workers[0]->names(), ElementsAre("a", "b", "c", "d"));
  expect_all_there(workers);
  EXPECT_EQ(workers[3]->registry().view().instance, instance);
  expect_barrier(workers, "back");
  for (std::size_t i = 2; i < 4; ++i) ends.push_back(workers[i]->gather("end", {}, "", kLong));
  for (auto& end : ends) {
    const RegistryWorker::Values values = end.get();
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_EQ(values->size(), 4u);
  }
  // All is as before: the dead are found.
  workers.erase(workers.begin());
  EXPECT_EVENTUALLY(workers[0]->names(), ElementsAre("b", "c", "d"));
}

TEST(EtcdRegistryTest, StoppedForLongerThanTheLease) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(1);
  away_and_back(
      servers, [&] { servers.process(0).signal(SIGSTOP); },
      [&] { servers.process(0).signal(SIGCONT); });
}

TEST(EtcdRegistryTest, DeadForLongerThanTheLease) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(1);
  away_and_back(
      servers, [&] { servers.kill(0); }, [&] { servers.start(0); });
}

TEST(EtcdRegistryTest, WithoutAMajorityForLongerThanTheLease) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(3);
  away_and_back(
      servers,
      [&] {
        servers.kill(0);
        servers.kill(1);
      },
      [&] {
        servers.start(0);
        servers.start(1);
      });
}

TEST(EtcdRegistryTest, WhatEtcdHasLostIsWrittenAgain) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(1);
  const Workers workers = join_all(servers, {"a", "b"}, kShortLease);
  servers.kill(0);
  for (const auto& worker : workers)
    EXPECT_EVENTUALLY(worker->state(), MembershipState::kSuspected);
  servers.wipe(0);
  servers.start(0);
  expect_all_there(workers);
  const auto next = join(servers, "c");
  EXPECT_EVENTUALLY(next->names(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(next->registry().view().instance, workers[0]->registry().view().instance);
}

TEST(EtcdRegistryTest, WhoAloneIsCutOffIsEvicted) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(1);
  const auto a = join(servers, "a");
  TcpProxy proxy(servers.port(0));
  const EtcdOptions through = through_proxy(servers);
  RegistryWorker b(through, with_lease(RegistryWorker::options("b"), kShortLease));
  EXPECT_EVENTUALLY(a->names(), ElementsAre("a", "b"));
  EXPECT_TRUE(eventually([&] { return b.is_member(); })) << b.why();
  proxy.refuse();
  EXPECT_EVENTUALLY(a->news(), Contains(HasSubstr("-b")));
  EXPECT_EQ(b.state(), MembershipState::kSuspected);
  EXPECT_THAT(b.names(), ElementsAre("a", "b"));
  proxy.pass();
  EXPECT_EVENTUALLY(b.state(), MembershipState::kEvicted);
  EXPECT_THAT(std::string(b.why().message()), HasSubstr("its lease at etcd has ended")) << b.why();
}

TEST(EtcdRegistryTest, OutOfQuota) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(1, {"--quota-backend-bytes", "1000000"});
  const Workers workers = join_all(servers, {"a", "b"}, kShortLease);
  const auto client = *EtcdClient::start(servers.options());
  absl::Status full;
  for (int i = 0; i < 100 && full.ok(); ++i) {
    pb::PutRequest put;
    put.set_key(absl::StrCat("/elsewhere/", i));
    put.set_value(std::string(100000, 'x'));
    full = ask(*client, put).status();
  }
  ASSERT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
  RegistryWorker late(servers, "c");
  EXPECT_EVENTUALLY(late.state(), MembershipState::kLeft);
  EXPECT_THAT(std::string(late.why().message()), HasSubstr("is out of quota (NOSPACE alarm)"))
      << late.why();
  // Leases are renewed, and who leaves is seen to be gone, if not why.
  EXPECT_FALSE(eventually([&] { return !workers[0]->is_member(); }, seconds(8)));
  expect_all_there(workers);
  workers[1]->registry().leave();
  EXPECT_EVENTUALLY(workers[0]->names(), ElementsAre("a"));
}

TEST(EtcdRegistryTest, AWrongPasswordEndsAJoinAtOnce) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(1);
  servers.require_root("right");
  EtcdOptions options = servers.options();
  options.user = "root";
  options.password = "wrong";
  RegistryWorker wrong(options, RegistryWorker::options("a"));
  EXPECT_EVENTUALLY(wrong.state(), MembershipState::kLeft);
  EXPECT_EQ(wrong.why().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(wrong.why().message()),
              HasSubstr("does not take this user and password"));
  options.password = "right";
  RegistryWorker right(options, RegistryWorker::options("a"));
  EXPECT_TRUE(eventually([&] { return right.is_member(); })) << right.why();
  EXPECT_EVENTUALLY(right.names(), ElementsAre("a"));
}

TEST(EtcdRegistryTest, NobodyThere) {
  auto options = RegistryWorker::options("a");
  options.join_for = seconds(3);
  EtcdOptions nobody;
  nobody.endpoints = {absl::StrCat("127.0.0.1:", sinew::testing::free_port())};
  RegistryWorker a(nobody, options);
  EXPECT_EVENTUALLY(a.state(), MembershipState::kLeft);
  EXPECT_THAT(std::string(a.why().message()), HasSubstr("cannot be reached")) << a.why();
}

TEST(EtcdRegistryTest, LeavingDoesNotHangOnEtcd) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(1);
  const auto a = join(servers, "a");
  servers.kill(0);
  a->registry().leave();
  EXPECT_EVENTUALLY(a->state(), MembershipState::kLeft);
  EXPECT_THAT(std::string(a->why().message()), HasSubstr("etcd does not answer")) << a->why();
}

TEST(EtcdRegistryTest, ManyJoinAtOnce) {
  SINEW_NEEDS_ETCD();
  EtcdServers servers(1);
  const auto begin = std::chrono::steady_clock::now();
  Workers workers;
  for (int i = 0; i < 64; ++i) {
    workers.push_back(std::make_unique<RegistryWorker>(servers, absl::StrCat("w", i)));
  }
  std::vector<int> ranks;
  for (const auto& worker : workers) {
    ASSERT_TRUE(eventually([&] { return worker->names().size() == 64 && worker->is_member(); }))
        << worker->why();
    ranks.push_back(worker->self().worker.rank);
  }
  const auto took = std::chrono::steady_clock::now() - begin;
  std::cout << "64 joined in " << std::chrono::duration_cast<milliseconds>(took).count() << " ms\n";
  std::sort(ranks.begin(), ranks.end());
  EXPECT_EQ(std::unique(ranks.begin(), ranks.end()), ranks.end());
  expect_barrier(workers, "all");
}

}  // namespace
}  // namespace sinew::internal::etcd
