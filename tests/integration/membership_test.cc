// Joining and leaving over gRPC: each kind of rendezvous, and what is refused. Workers of one
// process.

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/rpc/base/internal/file_descriptor.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/processes.h"
#include "sinew/tests/support/temporary_folder.h"

using sinew::ErrorCode;
using sinew::RpcError;
using sinew::Worker;
using sinew::WorkerOptions;
using sinew::testing::error_of;
using sinew::testing::eventually;
using sinew::testing::free_port;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;
using namespace std::chrono_literals;

namespace {

WorkerOptions options_of(const std::string& name, const std::string& init_method) {
  WorkerOptions options;
  options.name = name;
  options.methods = testapp::methods();
  options.init_method = init_method;
  options.num_threads = 2;
  return options;
}

WorkerOptions options_of(const std::string& name, const std::string& init_method, int rank,
                         int world_size) {
  WorkerOptions options = options_of(name, init_method);
  options.rank = rank;
  options.world_size = world_size;
  return options;
}

struct Outcome {
  Worker worker;
  ErrorCode code = ErrorCode::kOk;
  std::string message;
};

/// Starts all at once; none may throw anything but an RpcError.
std::vector<Outcome> start_all(const std::vector<WorkerOptions>& options) {
  std::vector<Outcome> outcomes(options.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < options.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        outcomes[i].worker = sinew::init_rpc(options[i]);
      } catch (const RpcError& error) {
        outcomes[i].code = error.code();
        outcomes[i].message = error.message();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

void expect_all_joined(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.worker.valid()) << outcome.message;
    if (!outcome.worker.valid()) continue;
    ASSERT_EQ(outcome.worker.workers().size(), outcomes.size());
    for (const sinew::WorkerInfo& other : outcome.worker.workers()) {
      EXPECT_EQ(outcome.worker.peer(other).call<&testapp::add>(1, 2), 3);
    }
  }
}

void shut_down(const std::vector<Outcome>& outcomes) {
  std::vector<std::thread> threads;
  for (const Outcome& outcome : outcomes) {
    if (outcome.worker.valid())
      threads.emplace_back([&] { EXPECT_NO_THROW(outcome.worker.shutdown({true, 60s, true})); });
  }
  for (std::thread& thread : threads) thread.join();
}

std::string tcp(absl::string_view host = "127.0.0.1") {
  return absl::StrCat("tcp://", host, ":", free_port());
}

bool has_ipv6_loopback() {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  const sinew::internal::FileDescriptor socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return socket.valid() &&
         ::bind(socket.number(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
}

std::vector<std::string> names_at(const Worker& worker) {
  std::vector<std::string> names;
  for (const sinew::WorkerInfo& member : worker.workers()) names.push_back(member.name);
  return names;
}

class Membership : public ::testing::Test {
 protected:
  std::string file() const { return "file://" + folder_.file("meet"); }
  const sinew::testing::TemporaryFolder folder_;
};

// ---- Fixed worlds.

TEST_F(Membership, FixedWorldOverTcp) {
  const std::string meet = tcp();
  const auto workers = start_all({options_of("a", meet, 0, 3), options_of("b", meet, 1, 3),
                                  options_of("c-d:e.f", meet, 2, 3)});
  expect_all_joined(workers);
  EXPECT_EQ("tcp://" + workers[0].worker.address(), meet);
  EXPECT_THAT(names_at(workers[2].worker), ElementsAre("a", "b", "c-d:e.f"));
  shut_down(workers);
}

TEST_F(Membership, FixedWorldOverTcpWithItsPlaceInTheUrl) {
  const std::string meet = tcp();
  const auto workers = start_all({options_of("a", meet + "?rank=0&world_size=2"),
                                  options_of("b", meet + "?rank=1&world_size=2")});
  expect_all_joined(workers);
  shut_down(workers);
}

TEST_F(Membership, FixedWorldOverAFile) {
  const auto workers = start_all({options_of("a", file(), 0, 3), options_of("b", file(), 1, 3),
                                  options_of("c", file(), 2, 3)});
  expect_all_joined(workers);
  shut_down(workers);
}

TEST_F(Membership, FixedWorldOverTheEnvironment) {
  ::setenv("MASTER_ADDR", "127.0.0.1", 1);
  ::setenv("MASTER_PORT", absl::StrCat(free_port()).c_str(), 1);
  const auto workers =
      start_all({options_of("a", "env://", 0, 2), options_of("b", "env://", 1, 2)});
  expect_all_joined(workers);
  shut_down(workers);
  ::unsetenv("MASTER_ADDR");
  ::unsetenv("MASTER_PORT");
  EXPECT_THAT(error_of([] { sinew::init_rpc(options_of("a", "env://", 0, 2)); }).message(),
              HasSubstr("MASTER_ADDR"));
}

TEST_F(Membership, OverIpv6) {
  if (!has_ipv6_loopback()) GTEST_SKIP() << "this machine has no IPv6 loopback address";
  const std::string meet = tcp("[::1]");
  const auto workers = start_all({options_of("a", meet, 0, 2), options_of("b", meet, 1, 2)});
  expect_all_joined(workers);
  EXPECT_THAT(workers[1].worker.address(), HasSubstr("[::1]:"));
  shut_down(workers);
}

TEST_F(Membership, FixedPortsAndAdvertisedAddresses) {
  const std::string meet = tcp();
  WorkerOptions a = options_of("a", meet, 0, 2);
  WorkerOptions b = options_of("b", meet, 1, 2);
  b.bind_address = absl::StrCat("127.0.0.1:", free_port());
  b.advertise_address = "localhost";
  const auto workers = start_all({a, b});
  expect_all_joined(workers);
  EXPECT_EQ(workers[1].worker.address(), "localhost" + b.bind_address.substr(9));
  shut_down(workers);
}

TEST_F(Membership, RankZeroWithAnAddressOfItsOwnStillMeetsTheOthers) {
  const std::string meet = tcp();
  WorkerOptions a = options_of("a", meet, 0, 2);
  a.bind_address = absl::StrCat("127.0.0.1:", free_port());
  const auto workers = start_all({a, options_of("b", meet, 1, 2)});
  expect_all_joined(workers);
  EXPECT_EQ(workers[0].worker.address(), a.bind_address);
  shut_down(workers);
}

// ---- What is refused, and how.

/// Whether this host has a Unix socket that stands for the worker's address.
bool has_local_socket(const Worker& worker) {
  std::ifstream table("/proc/net/unix");
  const std::string all{std::istreambuf_iterator<char>(table), {}};
  return absl::StrContains(all, absl::StrCat("@sinew/", worker.address(), "\n"));
}

TEST_F(Membership, WorkersOfOneHostMayBeToldToUseTcpOnly) {
  const std::string meet = tcp();
  std::vector<WorkerOptions> options = {options_of("a", meet, 0, 3), options_of("b", meet, 1, 3),
                                        options_of("c", meet, 2, 3)};
  options[0].same_host = false;
  options[1].same_host = false;
  const auto workers = start_all(options);
  expect_all_joined(workers);
  EXPECT_FALSE(has_local_socket(workers[0].worker));
  EXPECT_FALSE(has_local_socket(workers[1].worker));
  EXPECT_TRUE(has_local_socket(workers[2].worker));
  shut_down(workers);
}

TEST_F(Membership, MissingRanksAreNamed) {
  for (const std::string& meet : {tcp(), file()}) {
    WorkerOptions a = options_of("a", meet, 0, 4);
    WorkerOptions c = options_of("c", meet, 2, 4);
    // Rank 0 gives up first.
    a.join_timeout = 4s;
    c.join_timeout = 5s;
    for (const Outcome& outcome : start_all({a, c})) {
      EXPECT_EQ(outcome.code, ErrorCode::kDeadlineExceeded);
      EXPECT_THAT(outcome.message, HasSubstr("2 of 4 workers have arrived; missing ranks: 1, 3"));
    }
  }
}

TEST_F(Membership, RankZeroThatNeverComesIsNamed) {
  const std::string meet = tcp();
  WorkerOptions b = options_of("b", meet, 1, 2);
  b.join_timeout = 500ms;
  const RpcError error = error_of([&] { sinew::init_rpc(b); });
  EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("no answer at " + meet.substr(6) + " ("),
                                     HasSubstr("rank 0 listens there: start it")));
}

TEST_F(Membership, NameOrRankThatIsTakenIsRefused) {
  const std::string meet = tcp();
  const auto founder = start_all({options_of("a", meet, 0, 0), options_of("b", meet, 1, 0)});
  expect_all_joined(founder);
  RpcError error = error_of([&] { sinew::init_rpc(options_of("a", meet, 5, 0)); });
  EXPECT_EQ(error.code(), ErrorCode::kAlreadyExists);
  EXPECT_THAT(error.message(), HasSubstr("name 'a' is already used"));
  error = error_of([&] { sinew::init_rpc(options_of("other", meet, 1, 0)); });
  EXPECT_EQ(error.code(), ErrorCode::kAlreadyExists);
  EXPECT_THAT(error.message(), HasSubstr("rank 1 is already used by worker 'b'"));
  EXPECT_EQ(founder[0].worker.peer("b").call<&testapp::add>(1, 2), 3);
  shut_down(founder);
}

TEST_F(Membership, TwoOfOneNameInAFixedWorldFail) {
  const std::string meet = tcp();
  std::vector<WorkerOptions> options = {options_of("a", meet, 0, 3), options_of("b", meet, 1, 3),
                                        options_of("b", meet, 2, 3)};
  for (WorkerOptions& each : options) each.join_timeout = 3s;
  int refused = 0;
  for (const Outcome& outcome : start_all(options)) {
    EXPECT_NE(outcome.code, ErrorCode::kOk);
    if (outcome.code != ErrorCode::kAlreadyExists) continue;
    ++refused;
    EXPECT_THAT(outcome.message, HasSubstr("name 'b' is already used"));
  }
  EXPECT_GE(refused, 1);
}

TEST_F(Membership, AnotherJobAnotherWorldAndABadNameAreRefused) {
  const std::string meet = tcp();
  const auto founder = start_all({options_of("a", meet, 0, 0)});
  expect_all_joined(founder);
  WorkerOptions other_job = options_of("b", meet, 1, 0);
  other_job.job = "another";
  other_job.join_timeout = 5s;
  RpcError error = error_of([&] { sinew::init_rpc(other_job); });
  EXPECT_THAT(error.message(), AllOf(HasSubstr("job 'another'"), HasSubstr("job 'default'")))
      << error.what();
  WorkerOptions fixed = options_of("b", meet, 1, 2);
  fixed.join_timeout = 5s;
  error = error_of([&] { sinew::init_rpc(fixed); });
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition) << error.what();
  EXPECT_THAT(error.message(), HasSubstr("start all with one world size"));
  for (const char* bad : {"", "a*b", "a b"}) {
    EXPECT_EQ(error_of([&] { sinew::init_rpc(options_of(bad, meet, 1, 0)); }).code(),
              ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(
      error_of([&] { sinew::init_rpc(options_of(std::string(129, 'x'), meet, 1, 0)); }).code(),
      ErrorCode::kInvalidArgument);
  shut_down(founder);
}

TEST_F(Membership, AnAddressThatIsTakenIsRefused) {
  const std::string meet = tcp();
  const auto founder = start_all({options_of("a", meet, 0, 1)});
  const RpcError error = error_of([&] { sinew::init_rpc(options_of("b", meet, 0, 1)); });
  EXPECT_EQ(error.code(), ErrorCode::kAlreadyExists) << error.what();
  EXPECT_THAT(error.message(), HasSubstr(meet.substr(6)));
  EXPECT_EQ(founder[0].worker.peer("a").call<&testapp::add>(1, 2), 3);
  shut_down(founder);
}

TEST_F(Membership, InsecureCredentialsStayOnLoopback) {
  WorkerOptions a = options_of("a", tcp(), 0, 1);
  a.bind_address = "0.0.0.0:0";
  const RpcError error = error_of([&] { sinew::init_rpc(a); });
  EXPECT_EQ(error.code(), ErrorCode::kPermissionDenied) << error.what();
  EXPECT_THAT(error.message(), HasSubstr("insecure"));
}

// ---- Open membership.

void come_and_go(const std::string& meet) {
  WorkerOptions first = options_of("a", meet);
  first.rank = 0;  // over tcp:// it founds the job
  const Worker a = sinew::init_rpc(first);
  EXPECT_EQ(a.rank(), 0);
  const Worker b = sinew::init_rpc(options_of("b", meet));
  const Worker c = sinew::init_rpc(options_of("c", meet));
  EXPECT_EQ(b.rank() + c.rank(), 3);
  for (const Worker& worker : {a, b, c}) {
    EXPECT_EVENTUALLY(names_at(worker), SizeIs(3)) << worker.name();
    for (const char* other : {"a", "b", "c"})
      EXPECT_EQ(worker.peer(other).call<&testapp::add>(1, 2), 3);
  }
  // Holds something of those who stay.
  auto held = c.peer("b").remote<testapp::Counter>(1);
  held.created().wait();
  EXPECT_EQ(b.counters()["rref.forks"], 1);
  c.shutdown({true, 60s, true});
  for (const Worker& worker : {a, b}) EXPECT_EVENTUALLY(names_at(worker), SizeIs(2));
  EXPECT_TRUE(eventually([&] { return b.counters()["rref.forks"] == 0; }));
  EXPECT_EQ(error_of([&] { a.peer("c"); }).code(), ErrorCode::kNotFound);
  // It comes back, as somebody new.
  const Worker again = sinew::init_rpc(options_of("c", meet));
  EXPECT_TRUE(eventually([&] { return a.workers().size() == 3 && b.workers().size() == 3; }));
  for (const Worker& worker : {a, b, again})
    EXPECT_EQ(worker.peer("c").call<&testapp::add>(1, 2), 3);
  again.shutdown({true, 60s, true});
  b.shutdown({true, 60s, true});
  a.shutdown({true, 60s, true});
}

TEST_F(Membership, OpenOverTcp) { come_and_go(tcp()); }
TEST_F(Membership, OpenOverAFile) { come_and_go(file()); }

TEST_F(Membership, WhoIsNoFounderFoundsNothing) {
  for (const std::optional<int> rank : {std::optional<int>(), std::optional<int>(3)}) {
    WorkerOptions options = options_of("a", tcp());
    options.rank = rank;
    options.join_timeout = 1500ms;
    const RpcError error = error_of([&] { sinew::init_rpc(options); });
    EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
    EXPECT_THAT(error.message(), HasSubstr("the worker that founds the job listens there"));
  }
  WorkerOptions never = options_of("a", file());
  never.found_job = sinew::FoundJob::kNever;
  never.join_timeout = 500ms;
  EXPECT_EQ(error_of([&] { sinew::init_rpc(never); }).code(), ErrorCode::kDeadlineExceeded);
  WorkerOptions always = options_of("a", tcp());
  always.found_job = sinew::FoundJob::kAlways;
  const Worker a = sinew::init_rpc(always);
  EXPECT_EQ(a.rank(), 0);
  a.shutdown({true, 60s, true});
  WorkerOptions fixed = options_of("a", tcp(), 0, 1);
  fixed.found_job = sinew::FoundJob::kAlways;
  EXPECT_THAT(error_of([&] { sinew::init_rpc(fixed); }).message(), HasSubstr("found_job"));
}

// A learner that dies and comes back, at once and after the others have noticed; a new actor comes
// meanwhile.
TEST_F(Membership, AFounderThatComesBackFindsItsJob) {
  const std::string meet = tcp();
  WorkerOptions founder = options_of("learner", meet);
  founder.rank = 0;
  Worker learner = sinew::init_rpc(founder);
  std::vector<Worker> actors;
  for (const char* name : {"x", "y"}) actors.push_back(sinew::init_rpc(options_of(name, meet)));
  std::thread late;
  for (const bool at_once : {true, false, true}) {
    learner.shutdown({false});
    if (!at_once) {
      for (const Worker& actor : actors) EXPECT_EVENTUALLY(names_at(actor), SizeIs(2));
      late = std::thread([&] { actors.push_back(sinew::init_rpc(options_of("z", meet))); });
    }
    learner = sinew::init_rpc(founder);
    if (late.joinable()) late.join();
    EXPECT_EVENTUALLY(names_at(learner), SizeIs(actors.size() + 1));
    for (const Worker& actor : actors) {
      EXPECT_EVENTUALLY(names_at(actor), names_at(learner)) << actor.name();
      EXPECT_EQ(actor.peer("learner").call<&testapp::add>(1, 2), 3);
      EXPECT_EQ(learner.peer(actor.name()).call<&testapp::add>(1, 2), 3);
    }
  }
  for (const Worker& actor : actors) actor.shutdown({true, 60s, true});
  learner.shutdown({true, 60s, true});
}

TEST_F(Membership, RankZeroMayLeaveLikeAnyOther) {
  const Worker a = sinew::init_rpc(options_of("a", file()));
  const Worker b = sinew::init_rpc(options_of("b", file()));
  const Worker c = sinew::init_rpc(options_of("c", file()));
  a.shutdown({true, 60s, true});
  for (const Worker& worker : {b, c}) EXPECT_EVENTUALLY(names_at(worker), SizeIs(2));
  EXPECT_EQ(b.peer("c").call<&testapp::add>(1, 2), 3);
  // Those who stay let others in.
  const Worker late = sinew::init_rpc(options_of("late", file()));
  for (const Worker& worker : {b, c, late}) {
    EXPECT_EVENTUALLY(names_at(worker), SizeIs(3)) << worker.name();
    for (const char* other : {"b", "c", "late"})
      EXPECT_EQ(worker.peer(other).call<&testapp::add>(1, 2), 3);
  }
  EXPECT_EQ(late.rank(), 3) << "0 is the founder's";
  for (const Worker& worker : {late, b, c}) worker.shutdown({true, 60s, true});
}

TEST_F(Membership, WithoutARankInAFixedWorldIsRefused) {
  WorkerOptions a = options_of("a", tcp());
  a.world_size = 2;
  const RpcError error = error_of([&] { sinew::init_rpc(a); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr("rank"));
}

TEST_F(Membership, OptionsOutOfRangeAreNamed) {
  struct Case {
    const char* option;
    void (*set)(WorkerOptions&);
  };
  const Case cases[] = {
      {"heartbeat_interval must not", [](WorkerOptions& o) { o.heartbeat_interval = -1ns; }},
      {"max_poll must not be negative", [](WorkerOptions& o) { o.max_poll = -1ns; }},
      {"lease must be at least three", [](WorkerOptions& o) { o.heartbeat_interval = 6s; }},
      {"lease must be at least three", [](WorkerOptions& o) { o.heartbeat_interval = 200'000h; }},
      {"lease must be positive", [](WorkerOptions& o) { o.lease = 0s; }},
      {"join_timeout must be positive", [](WorkerOptions& o) { o.join_timeout = -1s; }},
      {"default_timeout must be positive", [](WorkerOptions& o) { o.default_timeout = 0s; }},
      {"max_message_bytes", [](WorkerOptions& o) { o.max_message_bytes = 0; }},
      {"send_window_bytes", [](WorkerOptions& o) { o.send_window_bytes = 0; }},
      {"receive_window_bytes", [](WorkerOptions& o) { o.receive_window_bytes = 0; }},
      {"max_client_request_bytes", [](WorkerOptions& o) { o.max_client_request_bytes = 0; }},
      {"max_client_request_bytes",
       [](WorkerOptions& o) { o.max_client_request_bytes = std::size_t{2} << 30; }},
  };
  for (const Case& wrong : cases) {
    WorkerOptions options = options_of("a", tcp(), 0, 1);
    wrong.set(options);
    const RpcError error = error_of([&] { sinew::init_rpc(options); });
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << wrong.option;
    EXPECT_THAT(error.message(), HasSubstr(wrong.option));
  }
}

TEST_F(Membership, AVariableThatIsNoNumberIsNamed) {
  ::setenv("SINEW_MAX_POLL_US", "fast", 1);
  const RpcError error = error_of([&] { sinew::init_rpc(options_of("a", tcp(), 0, 1)); });
  ::unsetenv("SINEW_MAX_POLL_US");
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr("SINEW_MAX_POLL_US is 'fast'"));
}

TEST_F(Membership, IdleWorkersOutliveManyLeases) {
  const std::string meet = tcp();
  std::vector<WorkerOptions> options = {options_of("a", meet, 0, 2), options_of("b", meet, 1, 2)};
  for (WorkerOptions& each : options) {
    each.heartbeat_interval = 100ms;
    each.lease = 3s;
  }
  const auto workers = start_all(options);
  expect_all_joined(workers);
  // Only time can show that nothing ends by itself: more than two leases of it.
  const auto end = std::chrono::steady_clock::now() + 7s;
  const sinew::Peer peer = workers[0].worker.peer("b");
  EXPECT_TRUE(eventually([&] { return std::chrono::steady_clock::now() > end || !peer.alive(); }));
  EXPECT_TRUE(peer.alive());
  EXPECT_EQ(workers[0].worker.peer("b").call<&testapp::add>(1, 2), 3);
  EXPECT_EQ(workers[1].worker.peer("a").call<&testapp::add>(1, 2), 3);
  shut_down(workers);
}

}  // namespace
