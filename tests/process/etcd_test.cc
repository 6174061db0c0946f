// Workers that meet at etcd: processes die, are stopped and come back, servers of etcd too. The
// tests only look on.

#include <algorithm>
#include <csignal>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/etcd/etcd_servers.h"
#include "sinew/tests/support/certificates.h"
#include "sinew/tests/support/eventual_value.h"
#include "sinew/tests/support/processes.h"

using sinew::testing::Certificates;
using sinew::testing::ChildProcess;
using sinew::testing::EtcdServers;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using namespace std::chrono_literals;

namespace {

class EtcdJob : public ::testing::Test {
 protected:
  using Child = std::unique_ptr<ChildProcess>;
  static constexpr char kGracefully[] = "shutdown graceful 60000";
  /// A barrier, though etcd may be slow to answer on a busy host.
  static constexpr char kMeet[] = "meet 60000";
  /// For tests that wait until leases end. Processes of a busy host stand still for seconds, too.
  static constexpr std::chrono::milliseconds kShortLease = 5s;

  void SetUp() override { SINEW_NEEDS_ETCD(); }
  std::string url() const {
    return absl::StrCat("etcd://", absl::StrJoin(servers_->endpoints(), ","), "/tests/job");
  }
  /// Its answer to that is yet to be received.
  Child begin(const std::string& name, const std::string& more = "",
              const std::vector<std::string>& environment = {}) const {
    auto child =
        std::make_unique<ChildProcess>(std::vector<std::string>{SINEW_TEST_WORKER}, environment);
    child->send(absl::StrCat("start name=", name, " init=", url(), " lease_ms=", lease_.count(),
                             " beat_ms=200 ", more));
    return child;
  }
  void join(const std::string& name, const std::string& more = "") {
    children_[name] = begin(name, more);
    ASSERT_THAT(at(name).receive(), StartsWith("ok ")) << name;
  }
  /// `a`, `b` and so on; a has rank 0.
  void join_open(int count) {
    for (int i = 0; i < count; ++i) {
      ASSERT_NO_FATAL_FAILURE(join(name_of(i), i == 0 ? "rank=0" : ""));
    }
    expect_members(all_names());
  }
  static std::string place(int rank, int size) {
    return absl::StrCat("rank=", rank, " world=", size);
  }
  void join_fixed(int size) {
    for (int rank = 0; rank < size; ++rank) {
      children_[name_of(rank)] = begin(name_of(rank), place(rank, size));
    }
    for (const auto& [name, child] : children_) {
      ASSERT_THAT(child->receive(), StartsWith("ok ")) << name;
    }
    expect_members(all_names());
  }
  static std::string name_of(int index) { return {static_cast<char>('a' + index)}; }
  ChildProcess& at(const std::string& name) { return *children_.at(name); }
  void kill(const std::string& name) {
    at(name).signal(SIGKILL);
    children_.erase(name);
  }
  std::string all_names() const {
    return absl::StrJoin(children_, " ", [](std::string* out, const auto& each) {
      absl::StrAppend(out, each.first);
    });
  }
  /// All say so, by rank.
  void expect_members(const std::string& names) {
    for (const auto& [name, child] : children_) {
      SCOPED_TRACE(name);
      EXPECT_EVENTUALLY(child->ask("members"), "ok " + names);
      EXPECT_EVENTUALLY(child->ask("state"), "ok member, runs");
    }
  }
  void expect_calls() {
    for (const auto& [from, child] : children_) {
      for (const auto& [to, other] : children_) {
        // One that is back may be known under its name a moment later.
        EXPECT_EVENTUALLY(child->ask("add " + to), "ok 3") << from << " to " << to;
      }
    }
  }
  void expect_all_say(const std::string& command, const std::string& answer = "ok ") {
    for (const auto& [name, child] : children_) child->send(command);
    for (const auto& [name, child] : children_) EXPECT_EQ(child->receive(), answer) << name;
  }
  void expect_all_well() {
    expect_calls();
    expect_all_say(kMeet);
  }
  void watch() { expect_all_say("watch"); }
  /// Who has come and gone, as that one was told. Without suspicion, which is the links': on a busy
  /// host members fall silent for a moment.
  std::string comings_and_goings(const std::string& name) {
    std::vector<std::string> events =
        absl::StrSplit(at(name).ask("events"), ' ', absl::SkipEmpty());
    const auto is_suspicion = [](const std::string& event) {
      return absl::StartsWith(event, "suspected:") || absl::StartsWith(event, "trusted:");
    };
    events.erase(std::remove_if(events.begin(), events.end(), is_suspicion), events.end());
    return absl::StrJoin(events, " ");
  }
  void expect_events(const std::string& events) {
    for (const auto& [name, child] : children_) {
      SCOPED_TRACE(name);
      EXPECT_EVENTUALLY(comings_and_goings(name), events);
    }
  }
  /// Nothing is said for a while.
  static void expect_waits(ChildProcess& child) {
    EXPECT_THROW(ADD_FAILURE() << child.receive(500ms), std::runtime_error);
  }

  std::optional<EtcdServers> servers_;
  /// On a busy host etcd may not answer for seconds, which is to change nothing.
  std::chrono::milliseconds lease_ = 15s;
  std::map<std::string, Child> children_;
};

// ---- Coming and going.

class EtcdJobAt : public EtcdJob, public ::testing::WithParamInterface<int> {
 protected:
  void SetUp() override {
    SINEW_NEEDS_ETCD();
    servers_.emplace(GetParam());
  }
};
INSTANTIATE_TEST_SUITE_P(All, EtcdJobAt, ::testing::Values(1, 3),
                         [](const auto& param) { return absl::StrCat("Servers", param.param); });

TEST_P(EtcdJobAt, WorkersComeAndGo) {
  ASSERT_NO_FATAL_FAILURE(join_open(3));
  expect_all_well();
  watch();
  EXPECT_EQ(at("b").ask(kGracefully), "ok ");
  children_.erase("b");
  expect_members("a c");
  expect_events("ok left:b");
  EXPECT_THAT(at("a").ask("add b"), StartsWith("error NOT_FOUND"));
  ASSERT_NO_FATAL_FAILURE(join("b"));
  expect_members("a b c");
  expect_all_well();
  for (const char* name : {"a", "c", "b"}) EXPECT_EQ(at(name).ask(kGracefully), "ok ") << name;
  // The job is over, and the next one begins there.
  children_.clear();
  ASSERT_NO_FATAL_FAILURE(join_open(2));
}

TEST_P(EtcdJobAt, AFixedWorldShutsDownTogether) {
  for (int job = 0; job < 2; ++job) {
    ASSERT_NO_FATAL_FAILURE(join_fixed(3));
    expect_all_well();
    at("b").send(kGracefully);
    expect_waits(at("b"));
    for (const char* name : {"a", "c"}) at(name).send(kGracefully);
    for (const auto& [name, child] : children_) EXPECT_EQ(child->receive(), "ok ") << name;
    children_.clear();
  }
}

// ---- Processes that die.

TEST_F(EtcdJob, RankZeroOfAnOpenJobIsKilledAndReplaced) {
  servers_.emplace(1);
  ASSERT_NO_FATAL_FAILURE(join_open(3));
  watch();
  kill("a");
  expect_members("b c");
  expect_events("ok lost:a");
  // Nobody has to wait for it.
  ASSERT_NO_FATAL_FAILURE(join("d"));
  expect_members("b c d");
  expect_all_well();
  ASSERT_NO_FATAL_FAILURE(join("e", "rank=0"));
  expect_members("e b c d");
  EXPECT_THAT(at("e").ask("view"), AllOf(StartsWith("ok e0#"), HasSubstr(", e")));
  expect_all_well();
}

TEST_F(EtcdJob, RankZeroOfAFixedWorldIsKilledAndReplaced) {
  servers_.emplace(1);
  ASSERT_NO_FATAL_FAILURE(join_fixed(3));
  kill("a");
  expect_members("b c");
  expect_all_well();
  ASSERT_NO_FATAL_FAILURE(join("d", place(0, 3)));
  expect_members("d b c");
  expect_all_well();
  expect_all_say(kGracefully);
}

TEST_F(EtcdJob, EachOfAFixedWorldIsKilledAndStartedAgain) {
  servers_.emplace(3);
  ASSERT_NO_FATAL_FAILURE(join_fixed(3));
  for (int turn = 0; turn < 6; ++turn) {
    const int rank = turn % 3;
    SCOPED_TRACE(turn);
    // At once, or when the others know it.
    kill(name_of(rank));
    if (turn >= 3) expect_members(all_names());
    ASSERT_NO_FATAL_FAILURE(join(name_of(rank), place(rank, 3)));
    expect_members("a b c");
    expect_calls();
  }
  expect_all_say(kMeet);
  expect_all_say(kGracefully);
}

TEST_F(EtcdJob, AllAreKilledAndStartedAgain) {
  lease_ = kShortLease;
  servers_.emplace(1);
  ASSERT_NO_FATAL_FAILURE(join_fixed(3));
  for (const char* name : {"a", "b", "c"}) kill(name);
  ASSERT_NO_FATAL_FAILURE(join_fixed(3));
  expect_all_well();
  expect_all_say(kGracefully);
}

TEST_F(EtcdJob, WhoIsStoppedForLongerThanItsLeaseIsOutAndRejoins) {
  lease_ = kShortLease;
  servers_.emplace(1);
  ASSERT_NO_FATAL_FAILURE(join_fixed(3));
  for (const char* name : {"c", "a"}) {
    SCOPED_TRACE(name);
    Child stopped = std::move(children_.at(name));
    children_.erase(name);
    stopped->signal(SIGSTOP);
    expect_members(all_names());
    stopped->signal(SIGCONT);
    EXPECT_EVENTUALLY(stopped->ask("state"), "ok evicted, does not run");
    for (const char* what : {"add b", "barrier 1000"}) {
      EXPECT_THAT(stopped->ask(what),
                  AllOf(StartsWith("error ABORTED"),
                        HasSubstr(absl::StrCat("'", name, "' was evicted from the job"))));
    }
    EXPECT_THAT(stopped->ask("rejoin"), StartsWith("ok "));
    children_[name] = std::move(stopped);
    expect_members("a b c");
    expect_all_well();
  }
  expect_all_say(kGracefully);
}

TEST_F(EtcdJob, ANameIsItsHoldersAsLongAsThatLives) {
  servers_.emplace(1);
  ASSERT_NO_FATAL_FAILURE(join_open(2));
  EXPECT_THAT(begin("b")->receive(),
              AllOf(StartsWith("error ALREADY_EXISTS"), HasSubstr("a worker 'b' already")));
  EXPECT_THAT(begin("c", "rank=0")->receive(),
              AllOf(StartsWith("error ALREADY_EXISTS"), HasSubstr("has rank 0")));
  expect_members("a b");
  expect_all_well();
}

// ---- Servers of etcd that die, or stand still.

TEST_F(EtcdJob, OneOfThreeServersIsKilledThenTheLeader) {
  servers_.emplace(3);
  ASSERT_NO_FATAL_FAILURE(join_open(3));
  watch();
  EXPECT_EQ(at("a").ask("flood c"), "ok ");
  const int leader = servers_->leader();
  for (const int killed : {(leader + 1) % 3, leader}) {
    SCOPED_TRACE(killed);
    servers_->kill(killed);
    const std::string name = name_of(static_cast<int>(children_.size()));
    ASSERT_NO_FATAL_FAILURE(join(name));
    EXPECT_EQ(at(name).ask("watch"), "ok ");
    expect_members(all_names());
    expect_all_well();
    servers_->start(killed);
    ASSERT_GE(servers_->leader(), 0);
  }
  EXPECT_EQ(comings_and_goings("a"), "ok joined:d joined:e");
  EXPECT_EQ(comings_and_goings("b"), "ok joined:d joined:e");
  EXPECT_THAT(at("a").ask("calm"), AllOf(StartsWith("ok wrong=0 "), HasSubstr("lost=0")));
}

TEST_F(EtcdJob, EtcdStandsStillForALease) {
  lease_ = kShortLease;
  servers_.emplace(1);
  ASSERT_NO_FATAL_FAILURE(join_open(3));
  watch();
  EXPECT_EQ(at("a").ask("flood c"), "ok ");
  servers_->process(0).signal(SIGSTOP);
  std::this_thread::sleep_for(lease_);
  servers_->process(0).signal(SIGCONT);
  // Whoever were out would learn it within a lease.
  std::this_thread::sleep_for(lease_);
  expect_members("a b c");
  expect_events("ok");
  EXPECT_THAT(at("a").ask("calm"), AllOf(StartsWith("ok wrong=0 "), HasSubstr("lost=0")));
  expect_all_well();
}

enum class Away { kStopped, kKilled, kForgets, kWithoutMajority };

class EtcdAway : public EtcdJob,
                 public ::testing::WithParamInterface<std::tuple<Away, /* is fixed */ bool>> {
 protected:
  void SetUp() override {
    SINEW_NEEDS_ETCD();
    servers_.emplace(away() == Away::kWithoutMajority ? 3 : 1);
    lease_ = kShortLease;
  }
  Away away() const { return std::get<0>(GetParam()); }
  bool is_fixed() const { return std::get<1>(GetParam()); }
  void leave() {
    if (away() == Away::kStopped) return servers_->process(0).signal(SIGSTOP);
    servers_->kill(0);
    if (away() == Away::kWithoutMajority) servers_->kill(1);
  }
  void come_back() {
    if (away() == Away::kStopped) return servers_->process(0).signal(SIGCONT);
    if (away() == Away::kForgets) servers_->wipe(0);
    servers_->start(0);
    if (away() == Away::kWithoutMajority) servers_->start(1);
  }
};
std::string name_of_away(const ::testing::TestParamInfo<EtcdAway::ParamType>& param) {
  const std::map<Away, const char*> names = {{Away::kStopped, "Stopped"},
                                             {Away::kKilled, "Killed"},
                                             {Away::kForgets, "Forgets"},
                                             {Away::kWithoutMajority, "WithoutMajority"}};
  const auto [away, is_fixed] = param.param;
  return absl::StrCat(names.at(away), is_fixed ? "Fixed" : "Open");
}
INSTANTIATE_TEST_SUITE_P(All, EtcdAway,
                         ::testing::Combine(::testing::Values(Away::kStopped, Away::kKilled,
                                                              Away::kForgets,
                                                              Away::kWithoutMajority),
                                            ::testing::Bool()),
                         name_of_away);

TEST_P(EtcdAway, ForLongerThanTheLease) {
  ASSERT_NO_FATAL_FAILURE(is_fixed() ? join_fixed(3) : join_open(3));
  watch();
  EXPECT_EQ(at("a").ask("flood c"), "ok ");
  EXPECT_EQ(at("b").ask("hold c counter"), "ok ");
  leave();
  for (const auto& [name, child] : children_) {
    EXPECT_EVENTUALLY(child->ask("state"), "ok suspected, runs");
    EXPECT_THAT(child->ask("barrier 60000"),
                AllOf(StartsWith("error UNAVAILABLE"), HasSubstr("etcd at 127.0.0.1:")));
  }
  Child late;
  if (!is_fixed()) {
    late = begin("d");
    expect_waits(*late);
  }
  // Who is suspected has not been answered for two thirds of a lease.
  std::this_thread::sleep_for(lease_);
  // Nobody is missed, and calls go on.
  expect_events("ok");
  expect_calls();
  if (late != nullptr && away() == Away::kForgets) {
    // Who joins at the very moment when etcd has lost all may found the job before its members.
    late->signal(SIGSTOP);
    come_back();
    expect_members(all_names());
    late->signal(SIGCONT);
  } else {
    come_back();
  }
  if (late != nullptr) {
    EXPECT_THAT(late->receive(), StartsWith("ok "));
    children_["d"] = std::move(late);
  }
  expect_members(all_names());
  // Whoever has not come back within a lease is lost.
  std::this_thread::sleep_for(lease_ + 1s);
  expect_members(all_names());
  for (const char* name : {"a", "b", "c"}) {
    EXPECT_EQ(comings_and_goings(name), is_fixed() ? "ok" : "ok joined:d") << name;
  }
  EXPECT_EQ(at("b").ask("use counter"), "ok 2");
  EXPECT_THAT(at("a").ask("calm"), AllOf(StartsWith("ok wrong=0 "), HasSubstr("lost=0")));
  expect_all_well();
  // The dead are found as before.
  kill("c");
  expect_members(is_fixed() ? "a b" : "a b d");
  expect_all_well();
  ASSERT_NO_FATAL_FAILURE(join("c", is_fixed() ? place(2, 3) : ""));
  expect_members(is_fixed() ? "a b c" : "a b c d");
  expect_all_say(kGracefully);
}

// A death meanwhile is known later, and the place is free again.
TEST_F(EtcdJob, OneIsKilledWhileEtcdIsAway) {
  lease_ = kShortLease;
  servers_.emplace(1);
  ASSERT_NO_FATAL_FAILURE(join_fixed(3));
  watch();
  servers_->process(0).signal(SIGSTOP);
  for (const char* name : {"a", "b"}) {
    EXPECT_EVENTUALLY(at(name).ask("state"), "ok suspected, runs");
  }
  kill("c");
  EXPECT_EVENTUALLY(at("a").ask("add c"), StartsWith("error UNAVAILABLE"));
  Child next = begin("c", place(2, 3));
  expect_waits(*next);
  servers_->process(0).signal(SIGCONT);
  EXPECT_THAT(next->receive(), StartsWith("ok "));
  children_["c"] = std::move(next);
  expect_members("a b c");
  expect_all_well();
  expect_all_say(kGracefully);
}

// A server that has nothing else to do waits for the end of the job all the time.
TEST_F(EtcdJob, WhoWaitsForTheEndOutlastsEtcd) {
  lease_ = kShortLease;
  servers_.emplace(1);
  ASSERT_NO_FATAL_FAILURE(join_fixed(4));
  at("b").send("serve");
  at("c").send("serve");
  expect_waits(at("b"));
  servers_->kill(0);
  EXPECT_EVENTUALLY(at("a").ask("state"), "ok suspected, runs");
  at("d").send("serve");
  std::this_thread::sleep_for(lease_);
  for (const char* name : {"b", "c", "d"}) expect_waits(at(name));
  servers_->start(0);
  EXPECT_EVENTUALLY(at("a").ask("state"), "ok member, runs");
  std::this_thread::sleep_for(lease_ + 1s);
  for (const char* name : {"b", "c", "d"}) expect_waits(at(name));
  EXPECT_EQ(at("a").ask(kGracefully), "ok ");
  EXPECT_EQ(at("b").receive(), "ok job over");
  EXPECT_EQ(at("c").receive(), "ok job over");
  EXPECT_EQ(at("d").receive(), "ok job over");
}

class EtcdIsGone : public EtcdJob, public ::testing::WithParamInterface</* is fixed */ bool> {};
INSTANTIATE_TEST_SUITE_P(All, EtcdIsGone, ::testing::Bool(),
                         [](const auto& param) { return param.param ? "Fixed" : "Open"; });

TEST_P(EtcdIsGone, AGracefulShutdownEnds) {
  servers_.emplace(1);
  // It may come back for twenty leases.
  lease_ = 2s;
  ASSERT_NO_FATAL_FAILURE(GetParam() ? join_fixed(3) : join_open(3));
  servers_->kill(0);
  // At once, and when it is known, without a limit and with one.
  at("a").send("shutdown graceful");
  EXPECT_EVENTUALLY(at("b").ask("state"), "ok suspected, runs");
  at("b").send("shutdown graceful");
  at("c").send("shutdown graceful 3000");
  // Nobody is waited for; the log says so.
  for (const char* name : {"a", "b", "c"}) {
    EXPECT_EQ(at(name).receive(), "ok ") << name;
    EXPECT_EQ(at(name).ask("state"), "ok left, does not run");
  }
}

// ---- Starts that fail.

TEST_F(EtcdJob, WrongUsersAndPasswords) {
  servers_.emplace(1);
  servers_->require_root("right");
  EXPECT_THAT(begin("a")->receive(),
              AllOf(StartsWith("error UNAUTHENTICATED"), HasSubstr("wants a user and a password"),
                    HasSubstr("ETCDCTL_USER")));
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"ETCDCTL_USER=root:wrong"},
        std::vector<std::string>{"ETCDCTL_USER=root", "ETCDCTL_PASSWORD=wrong"}}) {
    EXPECT_THAT(begin("a", "", wrong)->receive(),
                AllOf(StartsWith("error UNAUTHENTICATED"),
                      HasSubstr("does not take this user and password")));
  }
  children_["a"] = begin("a", "", {"ETCDCTL_USER=root:right"});
  children_["b"] = begin("b", "", {"ETCDCTL_USER=root", "ETCDCTL_PASSWORD=right"});
  for (const auto& [name, child] : children_) EXPECT_THAT(child->receive(), StartsWith("ok "));
  for (const auto& [name, child] : children_) {
    EXPECT_EVENTUALLY(child->ask("members"), AnyOf("ok a b", "ok b a"));
  }
  expect_all_well();
}

TEST_F(EtcdJob, APrefixIsOneJobs) {
  servers_.emplace(1);
  ASSERT_NO_FATAL_FAILURE(join_open(1));
  EXPECT_THAT(begin("b", "job=other")->receive(),
              AllOf(StartsWith("error FAILED_PRECONDITION"), HasSubstr("keys of another job"),
                    HasSubstr("etcdctl del --prefix")));
  EXPECT_THAT(begin("b", place(1, 2))->receive(),
              AllOf(StartsWith("error INVALID_ARGUMENT"), HasSubstr("has open membership")));
  expect_members("a");
}

TEST_F(EtcdJob, NobodyAnswers) {
  servers_.emplace(1);
  servers_->kill(0);
  EXPECT_THAT(begin("a", "join_ms=4000")->receive(),
              AllOf(StartsWith("error DEADLINE_EXCEEDED"), HasSubstr("'a' did not get into job"),
                    HasSubstr("cannot be reached"), HasSubstr(servers_->endpoint(0))));
}

TEST_F(EtcdJob, OverTls) {
  const Certificates certificates;
  certificates.issue("etcd");
  certificates.issue("client");
  const auto file = [&](const char* name) { return certificates.path(name); };
  servers_.emplace(
      1, std::vector<std::string>{"--cert-file", file("etcd.pem"), "--key-file", file("etcd.key"),
                                  "--trusted-ca-file", file("ca.pem"), "--client-cert-auth"});
  const auto ca = [&](const char* name) { return absl::StrCat("ETCDCTL_CACERT=", file(name)); };
  const std::vector<std::string> own = {absl::StrCat("ETCDCTL_CERT=", file("client.pem")),
                                        absl::StrCat("ETCDCTL_KEY=", file("client.key"))};
  // At least one attempt must have ended.
  EXPECT_THAT(begin("a", "join_ms=6000")->receive(),
              AllOf(StartsWith("error "), HasSubstr("wants TLS")));
  EXPECT_THAT(begin("a", "", own)->receive(),
              AllOf(StartsWith("error INVALID_ARGUMENT"), HasSubstr("ETCDCTL_CACERT")));
  EXPECT_THAT(begin("a", "", {"ETCDCTL_CACERT=/nowhere/ca.pem", own[0], own[1]})->receive(),
              AllOf(StartsWith("error "), HasSubstr("/nowhere/ca.pem")));
  EXPECT_THAT(begin("a", "", {ca("other-ca.pem"), own[0], own[1]})->receive(),
              AllOf(StartsWith("error "), HasSubstr("not signed by our authority")));
  for (const char* name : {"a", "b"}) {
    children_[name] = begin(name, "", {ca("ca.pem"), own[0], own[1]});
  }
  for (const auto& [name, child] : children_) EXPECT_THAT(child->receive(), StartsWith("ok "));
  expect_all_well();
}

// Whoever can write there decides who is in the job.
TEST(EtcdUrl, WhereLinksHaveTlsEtcdHasToo) {
  const Certificates certificates;
  const sinew::TlsFiles files = certificates.issue("a");
  ChildProcess child({SINEW_TEST_WORKER});
  EXPECT_THAT(child.ask(absl::StrCat("start name=a join_ms=2000 tls=mutual ca=", files.ca,
                                     " cert=", files.certificate, " key=", files.key,
                                     " bind=127.0.0.1:0 init=etcd://192.0.2.1:2379/job")),
              AllOf(StartsWith("error PERMISSION_DENIED"), HasSubstr("ETCDCTL_CACERT")));
}

TEST(EtcdUrl, ThatIsWrongIsSaid) {
  const std::map<std::string, const char*> texts = {
      {"etcd://127.0.0.1:2379", "it has no prefix"},
      {"etcd://127.0.0.1:2379/", "it has no prefix"},
      {"etcd:///job", "a server's address is empty"},
      {"etcd://127.0.0.1:2379,/job", "a server's address is empty"},
      {"etcd://127.0.0.1:99999/job", "127.0.0.1:99999"},
      {"etcd://root:secret@127.0.0.1:2379/job", "user and password are no part of it"},
      {"etcd://127.0.0.1:0/job", "name a host and a port"},
      {"etcd://192.0.2.1:2379/job", "is not a loopback address"},
      {"etcd://127.0.0.1:2379/job?ranks=2", "unknown parameter"},
  };
  for (const auto& [url, text] : texts) {
    ChildProcess child({SINEW_TEST_WORKER});
    EXPECT_THAT(
        child.ask("start name=a init=" + url),
        AllOf(AnyOf(StartsWith("error INVALID_ARGUMENT "), StartsWith("error PERMISSION_DENIED ")),
              HasSubstr(text), Not(HasSubstr("secret"))))
        << url;
  }
}

}  // namespace
