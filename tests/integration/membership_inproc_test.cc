// What becomes of a job of one process when a worker of it goes: the rows of the matrix that one
// process can do, with a shutdown without grace for a kill.

#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "sinew/rpc/membership/membership.h"
#include "sinew/rpc/transport/inproc/inproc_network.h"
#include "sinew/rpc/worker/worker_core.h"
#include "sinew/tests/process/membership_matrix.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/cluster.h"

using sinew::RpcError;
using sinew::Worker;
using sinew::testing::eventually;
using testmatrix::Event;
using testmatrix::Row;
using testmatrix::Victim;
using testmatrix::World;
using namespace std::chrono_literals;

namespace {

/// "OK", or the code of the RpcError that it throws.
std::string code_of(const std::function<void()>& what) {
  try {
    what();
    return "OK";
  } catch (const RpcError& error) {
    return std::string(absl::StatusCodeToString(error.code()));
  }
}

/// As rows have it.
std::string list_at(const Worker& worker) {
  std::string list;
  for (const sinew::WorkerInfo& member : worker.workers()) {
    absl::StrAppend(&list, list.empty() ? "" : " ", member.name, member.rank);
  }
  return absl::StrCat(list, ", ", sinew::WorkerAccess::core(worker)->coordinator().name);
}

class MembershipInproc : public ::testing::Test {
 protected:
  void TearDown() override { end(); }
  void end() {
    for (const auto& [name, worker] : workers_) worker.shutdown({false, 60s, false});
    workers_.clear();
  }
  void start(const std::string& name, std::optional<int> rank = std::nullopt) {
    sinew::WorkerOptions options;
    options.name = name;
    options.rank = rank;
    options.init_method = "inproc://matrix";
    options.network = network_;
    options.methods = testapp::methods();
    options.num_threads = 2;
    workers_[name] = sinew::init_rpc(options);
  }
  void expect_list(const std::string& list) {
    for (const auto& each : workers_) EXPECT_EVENTUALLY(list_at(each.second), list) << each.first;
  }
  void expect_barrier() {
    for (const auto& [name, worker] : workers_) {
      EXPECT_EVENTUALLY(worker.membership_state(), sinew::MembershipState::kMember) << name;
    }
    std::vector<std::future<std::string>> barriers;
    for (const auto& [name, worker] : workers_) {
      barriers.push_back(std::async(
          std::launch::async, [worker = worker] { return code_of([&] { worker.barrier(60s); }); }));
    }
    for (std::future<std::string>& barrier : barriers) EXPECT_EQ(barrier.get(), "OK");
  }
  void run(const Row& row);

  std::shared_ptr<sinew::internal::InprocNetwork> network_;
  std::map<std::string, Worker> workers_;
};

void MembershipInproc::run(const Row& row) {
  network_ = std::make_shared<sinew::internal::InprocNetwork>();
  for (const char* name : {"a", "b"}) start(name);
  start("d", 3);
  start("c");
  expect_list("a0 b1 c2 d3, a");
  const std::string name = row.victim == Victim::kRankZero  ? "a"
                           : row.victim == Victim::kHighest ? "d"
                                                            : "c";
  Worker victim = workers_.at(name);
  workers_.erase(name);
  const Worker owner = workers_.begin()->second;
  const Worker user = workers_.rbegin()->second;

  const auto theirs = victim.peer(owner.name()).remote<testapp::Counter>(1);
  const auto its = user.peer(name).remote<testapp::Counter>(1);
  theirs.created().wait();
  its.created().wait();
  const bool calls = row.call_begun != std::string("-");
  sinew::Future<int> call;
  if (calls) call = user.peer(name).async<&testapp::stall>();
  std::vector<sinew::Future<std::vector<std::string>>> barriers;
  for (const auto& [survivor, worker] : workers_) {
    barriers.push_back(sinew::WorkerAccess::core(worker)->membership().all_gather_async(
        {"a", "b", "c", "d"}, {}, 60s));
  }
  victim.shutdown({row.event == Event::kLeave, 60s, false});

  for (const auto& barrier : barriers) {
    EXPECT_EQ(code_of([&] { barrier.wait_for(60s); }), row.barrier_begun);
  }
  if (calls) {
    EXPECT_EQ(code_of([&] { call.wait_for(60s); }), row.call_begun);
  }
  expect_list(row.list.file);
  // workers() leaves out who is lost before the list does.
  EXPECT_EVENTUALLY(code_of([&] { user.peer(name).call<&testapp::add>(1, 2); }), row.call);
  EXPECT_EQ(code_of([&] { its.call<&testapp::Counter::get>(); }), row.use);
  EXPECT_EQ(code_of([&] { victim.peer(owner.name()).call<&testapp::add>(1, 2); }),
            "FAILED_PRECONDITION");
  EXPECT_TRUE(eventually([&] { return owner.counters()["rref.owned"] == 0; }));
  expect_barrier();
  start("e");
  expect_list(row.end.file);
  expect_barrier();
}

TEST_F(MembershipInproc, IsAsItsRowsSay) {
  for (const Row& row : testmatrix::kRows) {
    const bool fits = row.event == Event::kKill || row.event == Event::kLeave;
    if (row.world != World::kOpen || !fits) continue;
    SCOPED_TRACE(absl::StrCat(row.event == Event::kKill ? "killed, " : "left, ", row.list.file));
    ASSERT_NO_FATAL_FAILURE(run(row));
    end();
  }
}

}  // namespace
