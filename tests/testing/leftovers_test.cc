// Each counter of what comes and goes is told by its name, with its number, until it is back at
// zero.

#include "sinew/testing/leftovers.h"

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/ones.h"
#include "absl/functional/any_invocable.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/testing/cluster.h"
#include "sinew/tests/support/eventual_value.h"
#include "sinew/tests/testing/store.h"

using sinew::Future;
using sinew::Worker;
using sinew::testing::CallKind;
using sinew::testing::calls;
using sinew::testing::Cluster;
using sinew::testing::Fault;
using ::testing::ElementsAreArray;
using testkit::Cell;

namespace {

/// Lets something go, and takes with it what it holds.
using LetGo = absl::AnyInvocable<void()>;

/// What a test leaves behind, and the lines about it of all workers of the cluster.
struct Row {
  const char* name;
  std::function<LetGo(Cluster&)> leave;
  std::vector<std::string> lines;
};

LetGo leave_calls(Cluster& cluster) {
  const Worker actor = cluster.worker("actor");
  std::vector<Future<void>> made;
  made.push_back(actor.peer("learner").async<&testkit::wait_at_gate>());
  for (int i = 0; i < 2; ++i) made.push_back(actor.peer("learner").async<&testkit::stall>());
  return [made = std::move(made)] {
    testkit::gate().open();
    testkit::finish_stalled();
    for (const Future<void>& call : made) call.wait();
    testkit::gate().close();
  };
}

sinew::RRef<Cell> new_cell(const Worker& user) {
  auto cell = user.peer("learner").remote<Cell>(1);
  cell.created().wait();
  return cell;
}

LetGo leave_references(Cluster& cluster) {
  const Worker actor = cluster.worker("actor");
  auto cell = new_cell(actor);
  auto another = actor.peer("learner").call<&testkit::pass_on>(cell);
  return [cell = std::move(cell), another = std::move(another)] {};
}

LetGo leave_a_reference_that_is_being_made(Cluster& cluster) {
  const Worker actor = cluster.worker("actor");
  auto made = new_cell(actor);
  const Fault held = cluster.faults().hold(calls<Cell>());
  return [held, made = std::move(made), being_made = actor.peer("learner").remote<Cell>(1)] {
    held.remove();
  };
}

LetGo leave_a_reference_on_its_way(Cluster& cluster) {
  const Fault held = cluster.faults().hold(calls<&testkit::pass_on>());
  const Worker actor = cluster.worker("actor");
  auto cell = new_cell(actor);
  std::vector<Future<sinew::RRef<Cell>>> passed;
  for (int i = 0; i < 2; ++i) passed.push_back(actor.peer("other").async<&testkit::pass_on>(cell));
  return [held, cell = std::move(cell), passed = std::move(passed)] {
    held.remove();
    for (const auto& each : passed) each.wait();
  };
}

LetGo leave_names(Cluster& cluster) {
  const Worker learner = cluster.worker("learner");
  for (const char* name : {"one", "two"}) learner.publish(name, std::make_shared<Cell>(1));
  return [learner] {
    for (const char* name : {"one", "two"}) learner.unpublish(name);
  };
}

LetGo leave_waits_for_a_name(Cluster& cluster) {
  const Worker learner = cluster.worker("learner");
  std::vector<Future<sinew::RRef<Cell>>> found;
  for (const char* by : {"actor", "other"}) {
    found.push_back(cluster.worker(by).find_async<Cell>("learner/late", sinew::kNoTimeout));
  }
  return [learner, found = std::move(found)] {
    learner.publish("late", std::make_shared<Cell>(1));
    for (const auto& each : found) each.wait();
    learner.unpublish("late");
  };
}

/// A context in which two tensors have gone to the learner, and one has come back.
struct Work {
  explicit Work(const Worker& actor)
      : context(actor), loss(actor.peer("learner").call<&testkit::twice>(leaf).sum()) {
    actor.peer("learner").call<&testkit::count_elements>(leaf);
  }

  const at::Tensor leaf = at::ones({2}).requires_grad_(true);
  const sinew::autograd::Context context;
  const at::Tensor loss;
};

LetGo leave_a_context(Cluster& cluster) {
  return [work = std::make_unique<Work>(cluster.worker("actor"))] {};
}

LetGo leave_a_pass(Cluster& cluster) {
  const Fault held = cluster.faults().hold(calls().kind(CallKind::kBackward));
  auto work = std::make_unique<Work>(cluster.worker("actor"));
  auto pass = std::async(std::launch::async,
                         [&work = *work] { sinew::autograd::backward(work.context, {work.loss}); });
  held.wait_for_hits(1);
  return [held, work = std::move(work), pass = std::move(pass)]() mutable {
    held.remove();
    pass.get();
  };
}

/// Each counter that testing::leftovers() tells of is in one of them.
std::vector<Row> rows() {
  return {
      {"Calls",
       &leave_calls,
       {"learner: rpc.limited_calls is 2", "learner: rpc.server_active_calls is 3",
        "actor: rpc.client_active_calls is 3"}},
      {"References",
       &leave_references,
       {"learner: rref.forks is 2", "learner: rref.owned is 1", "actor: rref.users is 2"}},
      {"AReferenceThatIsBeingMade",
       &leave_a_reference_that_is_being_made,
       {"learner: rpc.server_active_calls is 1", "learner: rref.forks is 1",
        "learner: rref.owned is 1", "actor: rpc.client_active_calls is 1",
        "actor: rref.pending_users is 1", "actor: rref.users is 2"}},
      {"AReferenceOnItsWay",
       &leave_a_reference_on_its_way,
       {"learner: rref.forks is 1", "learner: rref.owned is 1",
        "actor: rpc.client_active_calls is 2", "actor: rref.pending_children is 2",
        "actor: rref.users is 1", "other: rpc.server_active_calls is 2"}},
      {"Names", &leave_names, {"learner: names.published is 2"}},
      {"WaitsForAName", &leave_waits_for_a_name, {"learner: names.waiters is 2"}},
      {"AContext",
       &leave_a_context,
       {"learner: autograd.contexts is 1", "learner: autograd.recvs is 2",
        "learner: autograd.sends is 1", "actor: autograd.contexts is 1",
        "actor: autograd.recvs is 1", "actor: autograd.sends is 2"}},
      {"APass",
       &leave_a_pass,
       {"learner: autograd.contexts is 1", "learner: autograd.recvs is 2",
        "learner: autograd.sends is 1", "learner: rpc.server_active_calls is 1",
        "actor: autograd.contexts is 1", "actor: autograd.passes is 1",
        "actor: autograd.recvs is 1", "actor: autograd.sends is 2",
        "actor: rpc.client_active_calls is 1"}},
  };
}

class Leftovers : public ::testing::TestWithParam<Row> {
 protected:
  void TearDown() override { cluster_.shutdown(); }

  /// stall() has a limit, so its calls are counted as such.
  Cluster cluster_{{"learner", "actor", "other"},
                   sinew::serve<Cell>()
                       .add<&testkit::pass_on, &testkit::twice, &testkit::count_elements,
                            &testkit::wait_at_gate>()
                       .add<&testkit::stall>(sinew::MethodRules().limit_calls(2))};
};
INSTANTIATE_TEST_SUITE_P(All, Leftovers, ::testing::ValuesIn(rows()),
                         [](const auto& row) { return row.param.name; });

TEST_P(Leftovers, AreToldUntilTheyAreGone) {
  const Row row = GetParam();
  {
    LetGo let_go = row.leave(cluster_);
    // A call is counted until its server has let go of it, which its caller may see late.
    EXPECT_EVENTUALLY(cluster_.leftovers(), ElementsAreArray(row.lines));
    let_go();
  }
  cluster_.wait_until_at_rest();
}

}  // namespace
