// How a worker that only serves comes to its end.

#include <csignal>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/tests/process/test_methods.h"
#include "sinew/tests/support/cluster.h"

using sinew::ErrorCode;
using sinew::RpcError;
using sinew::ServedUntil;
using sinew::ShutdownOptions;
using sinew::Worker;
using sinew::testing::error_of;
using sinew::testing::eventually;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

namespace {

std::future<ServedUntil> serve(const Worker& worker) {
  return std::async(std::launch::async, [worker] { return worker.serve_until_done(); });
}

bool waits_for_signals() {
  struct sigaction action = {};
  sigaction(SIGTERM, nullptr, &action);
  return action.sa_handler != SIG_DFL;
}

class Serve : public sinew::testing::ClusterTest {
 protected:
  void start_all(int size, std::function<void(int, sinew::WorkerOptions&)> tweak = nullptr) {
    start(size, testapp::methods(), std::move(tweak));
  }
  static ShutdownOptions hard() { return {false, 60s, false}; }
};
SINEW_INSTANTIATE_CLUSTER_TEST(Serve);

TEST_P(Serve, UntilTheOthersShutDown) {
  start_all(3);
  auto first = serve(worker(1));
  auto second = serve(worker(2));
  for (const int server : {1, 2}) {
    EXPECT_EQ(worker(0).peer(server).call<&testapp::add>(1, 2), 3);
  }
  worker(0).shutdown();
  EXPECT_EQ(first.get(), ServedUntil::kJobIsOver);
  EXPECT_EQ(second.get(), ServedUntil::kJobIsOver);
  EXPECT_FALSE(worker(1).is_running());
}

TEST_P(Serve, WithAShutdownOfAnotherThreadBesideIt) {
  start_all(2);
  auto server = serve(worker(1));
  EXPECT_TRUE(eventually([] { return waits_for_signals(); }));
  auto other = std::async(std::launch::async, [&] { worker(1).shutdown(); });
  worker(0).shutdown();
  EXPECT_EQ(server.get(), ServedUntil::kJobIsOver);
  other.get();
  EXPECT_FALSE(waits_for_signals());
}

TEST_P(Serve, NobodyIsLeftToServe) {
  start_all(3);
  auto first = serve(worker(1));
  auto second = serve(worker(2));
  worker(0).shutdown(hard());
  for (auto* server : {&first, &second}) {
    const RpcError error = error_of([&] { server->get(); });
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
    EXPECT_THAT(error.message(), HasSubstr("has no worker left to serve"));
    EXPECT_THAT(error.message(), HasSubstr("'worker0'"));
  }
  EXPECT_FALSE(worker(1).is_running());
  abandon();
}

TEST_P(Serve, AnotherThreadMayEndIt) {
  start_all(2);
  auto server = serve(worker(1));
  EXPECT_TRUE(eventually([] { return waits_for_signals(); }));
  EXPECT_EQ(worker(0).peer(1).call<&testapp::add>(1, 2), 3);
  worker(1).shutdown(hard());
  EXPECT_EQ(server.get(), ServedUntil::kAskedToEnd);
  EXPECT_EQ(worker(1).serve_until_done(), ServedUntil::kAskedToEnd) << "it has been, before";
  abandon();
}

TEST_P(Serve, InOpenMembershipUntilItIsAsked) {
  start_all(2, [](int, sinew::WorkerOptions& options) { options.world_size.reset(); });
  auto server = serve(worker(1));
  EXPECT_EQ(worker(0).peer(1).call<&testapp::add>(1, 2), 3);
  worker(1).shutdown();
  EXPECT_EQ(server.get(), ServedUntil::kAskedToEnd);
  abandon();
}

TEST_P(Serve, AnEvictedWorkerSaysSoAndMayRejoin) {
  start_all(3);
  auto server = serve(worker(2));
  EXPECT_EQ(worker(0).peer(2).call<&testapp::add>(1, 2), 3);
  evict(2);
  const RpcError error = error_of([&] { server.get(); });
  EXPECT_EQ(error.code(), ErrorCode::kAborted) << error.what();
  EXPECT_EQ(error_of([&] { worker(2).serve_until_done(); }).code(), ErrorCode::kAborted);
  replace(2, worker(2).rejoin());
  EXPECT_TRUE(eventually([&] { return worker(0).workers().size() == 3; }));
  auto again = serve(worker(2));
  worker(0).shutdown(hard());
  worker(1).shutdown();
  EXPECT_EQ(again.get(), ServedUntil::kJobIsOver);
  abandon();
}

TEST_P(Serve, GoesOnWithTheWorkerThatTakesItsPlace) {
  std::promise<Worker> back;
  start_all(3, [&](int rank, sinew::WorkerOptions& options) {
    if (rank == 2) options.on_rejoined = [&](const Worker& next) { back.set_value(next); };
  });
  auto server = serve(worker(2));
  EXPECT_EQ(worker(0).peer(2).call<&testapp::add>(1, 2), 3);
  evict(2);
  replace(2, back.get_future().get());
  EXPECT_TRUE(eventually([&] { return worker(0).workers().size() == 3; }));
  EXPECT_EQ(worker(0).peer(2).call<&testapp::add>(1, 2), 3);
  std::thread other([&] { worker(1).shutdown(); });
  worker(0).shutdown();
  other.join();
  EXPECT_EQ(server.get(), ServedUntil::kJobIsOver);
}

TEST_P(Serve, InAHandlerIsRefused) {
  start_all(1);
  const Worker self = worker(0);
  const auto refused = self.peer(0).async<&testapp::add>(1, 2).then(
      [self](int) { return static_cast<int>(error_of([&] { self.serve_until_done(); }).code()); });
  EXPECT_EQ(refused.wait(), static_cast<int>(ErrorCode::kFailedPrecondition));
}

// ---- What handles say of themselves when all has ended.

TEST_P(Serve, HandlesAnswerWhateverHasEnded) {
  start_all(3);
  const auto theirs = worker(2).peer(0).remote<testapp::Counter>(1);
  theirs.created().wait();
  const auto own = worker(2).self().remote<testapp::Counter>(1);
  own.created().wait();
  const sinew::Peer before = theirs.peer();
  EXPECT_TRUE(before.alive());
  evict(2);
  Worker old = worker(2);
  replace(2, old.rejoin());
  for (int round = 0; round < 2; ++round) {
    for (const auto& rref : {theirs, own}) {
      const sinew::Peer peer = rref.within(1s).peer();
      EXPECT_EQ(peer.name(), rref.owner_name());
      EXPECT_EQ(peer.rank(), rref.owner().rank);
      EXPECT_EQ(peer.info(), rref.owner());
      EXPECT_FALSE(peer.alive());
      EXPECT_EQ(peer.options().timeout, std::chrono::nanoseconds(1s));
      EXPECT_EQ(peer, rref.peer());
      EXPECT_FALSE(peer.retrying().alive());
      EXPECT_NO_THROW(rref.confirmed_by_owner());
      EXPECT_NO_THROW(rref.to_string());
      EXPECT_NO_THROW(rref.created());
      // What is done with it says why not.
      const RpcError call = error_of([&] { peer.call<&testapp::add>(1, 2); });
      EXPECT_EQ(call.code(), ErrorCode::kAborted) << call.what();
      EXPECT_EQ(error_of([&] { peer.ready().wait(); }).code(), ErrorCode::kAborted);
    }
    EXPECT_NE(theirs.peer(), own.peer());
    EXPECT_FALSE(before.alive());
    // The same when the last handle of the old worker has gone.
    old = Worker();
  }
  EXPECT_THAT(error_of([] { sinew::Peer().call<&testapp::add>(1, 2); }).message(),
              HasSubstr("this Peer is empty"));
  EXPECT_FALSE(sinew::Peer().alive());
}

}  // namespace
