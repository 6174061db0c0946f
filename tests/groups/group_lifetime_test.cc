// Groups whose ranks are threads of one process: how they start and end, and operations that take
// too long.

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/groups/internal/assembly.h"
#include "sinew/groups/internal/store_backend.h"
#include "sinew/rpc/base/error.h"
#include "sinew/tests/groups/ranks.h"

using namespace std::chrono_literals;
using sinew::ErrorCode;
using sinew::Future;
using sinew::GroupOptions;
using sinew::init_process_group;
using sinew::ProcessGroup;
using sinew::ReduceOp;
using sinew::RpcError;
using sinew::Store;
using sinew::testing::error_of;
using sinew::testing::Ranks;
using sinew::testing::run_ranks;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

namespace {

TEST(GroupLifetime, OneOperationsTimeLimitCountsAndNamesWhoIsMissing) {
  std::promise<void> over;
  const auto failed = over.get_future().share();
  Ranks(3).run([&](const ProcessGroup& group) {
    group.barrier();
    if (group.rank() == 1) {
      failed.wait();
      const RpcError late = error_of([&] { group.all_reduce(at::zeros({2})); });
      EXPECT_THAT(late.message(), HasSubstr("rank 1 has not come to it"));
      return;
    }
    const RpcError error = error_of(
        [&] { group.all_reduce(at::zeros({2}), ReduceOp::kSum, {group.rank() == 0 ? 3s : 60s}); });
    EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded) << error.what();
    EXPECT_THAT(error.message(),
                AllOf(HasSubstr("all_reduce(SUM) of float32 [2] was not done within 3 s"),
                      HasSubstr("rank 1 has not come to it")));
    const RpcError again = error_of([&] { group.barrier(); });
    EXPECT_EQ(again.code(), ErrorCode::kFailedPrecondition);
    if (group.rank() == 0) over.set_value();
  });
}

TEST(GroupLifetime, AReceiveHasATimeLimitToo) {
  Ranks(2).run([](const ProcessGroup& group) {
    if (group.rank() == 0) {
      const RpcError error = error_of([&] { group.recv(at::zeros({2}), 1, 0, {300ms}); });
      EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded) << error.what();
      EXPECT_THAT(error.message(),
                  HasSubstr("rank 1 has not come, or with another tag, type or size"));
    } else {
      // The group has failed for all.
      const RpcError error = error_of([&] { group.recv(at::zeros({2}), 0); });
      EXPECT_THAT(error.message(), HasSubstr("recv of float32 [2] was not done within 0.3 s"));
    }
  });
}

TEST(GroupLifetime, DestroyEndsWhatIsUnderWayAtOnce) {
  const Ranks ranks(2);
  run_ranks(2, [&](int rank) {
    const ProcessGroup group = init_process_group(ranks.options(rank));
    group.barrier();
    if (rank == 0) {
      const Future<void> pending = group.all_reduce_async(at::zeros({1000}));
      const auto begin = std::chrono::steady_clock::now();
      group.destroy();
      EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
      EXPECT_EQ(error_of([&] { pending.wait(); }).code(), ErrorCode::kCancelled);
      EXPECT_THAT(error_of([&] { group.barrier(); }).message(), HasSubstr("is destroyed"));
      EXPECT_THAT(error_of([&] { group.new_group({0, 1}); }).message(), HasSubstr("is destroyed"));
      group.destroy();
    } else {
      const RpcError error = error_of([&] { group.recv(at::zeros({1}), 0, 5); });
      EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
      EXPECT_THAT(error.message(), HasSubstr("rank 0 has ended or left the group"));
    }
  });
}

TEST(GroupLifetime, TheLastHandleDestroys) {
  const Ranks ranks(2);
  run_ranks(2, [&](int rank) {
    ProcessGroup group = init_process_group(ranks.options(rank));
    group.barrier();
    if (rank == 0) {
      const Future<int> pending = group.irecv(at::zeros({1}), 1);
      group = ProcessGroup();
      EXPECT_EQ(error_of([&] { pending.wait(); }).code(), ErrorCode::kCancelled);
    } else {
      EXPECT_EQ(error_of([&] { group.recv(at::zeros({1}), 0); }).code(), ErrorCode::kUnavailable);
    }
  });
}

TEST(GroupLifetime, IsMadeAnewUnderItsName) {
  const Ranks ranks(2);
  for (int round = 0; round < 3; ++round) {
    ranks.run([&](const ProcessGroup& group) {
      const at::Tensor sum = at::ones({2});
      group.all_reduce(sum);
      EXPECT_TRUE(sum.equal(at::full({2}, 2.0)));
      const RpcError error =
          error_of([&] { group.recv(at::zeros({1}), 1 - group.rank(), 3, {200ms}); });
      // The other one's time may be over before this one begins.
      EXPECT_THAT(error.code(),
                  AnyOf(ErrorCode::kDeadlineExceeded, ErrorCode::kFailedPrecondition));
    });
  }
}

TEST(GroupLifetime, AStartInVainNamesTheMissingRanksAndSpoilsNothing) {
  const Ranks ranks(3);
  run_ranks(2, [&](int rank) {
    GroupOptions options = ranks.options(rank == 0 ? 0 : 2);
    options.timeout = rank == 0 ? 3s : 60s;
    const RpcError error = error_of([&] { init_process_group(options); });
    EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded) << error.what();
    EXPECT_THAT(error.message(), HasSubstr("rank 1 of 3 has not come"));
  });
  ranks.run([](const ProcessGroup& group) { group.barrier(); });
}

// Rank 0's worker has lost rank 2, which the others cannot know.
TEST(GroupLifetime, ALossThatOneRankKnowsOfEndsTheStartOfAll) {
  const Store store = Store::in_memory();
  run_ranks(2, [&](int rank) {
    sinew::internal::AssemblyRequest request;
    request.store = store;
    request.group = "group";
    request.rank = rank;
    request.size = 3;
    request.terms = "the same";
    request.deadline = sinew::internal::Clock::system().now() + 120s;
    if (rank == 0) {
      request.health = [] { return absl::UnavailableError("rank 2 (worker 'c') is lost"); };
    }
    const absl::StatusOr<Store> met = sinew::internal::assemble(request);
    ASSERT_EQ(met.status().code(), absl::StatusCode::kUnavailable) << met.status();
    EXPECT_THAT(std::string(met.status().message()), HasSubstr("rank 2 (worker 'c') is lost"));
    if (rank == 1) {
      EXPECT_THAT(std::string(met.status().message()),
                  HasSubstr("rank 0 has given up the start of the group 'group'"));
    }
  });
}

/// For so many questions as if its server stood still: no patience is enough but that of the start.
class SlowStore final : public sinew::internal::StoreBackend {
 public:
  absl::StatusOr<sinew::proto::StoreReply> call(
      sinew::proto::StoreRequest request, sinew::internal::Clock::TimePoint deadline) override {
    if (deadline < sinew::internal::Clock::system().now() + 60s && silent_for_.fetch_sub(1) > 0) {
      return absl::DeadlineExceededError("it does not answer");
    }
    return sinew::StoreAccess::backend(store_)->call(std::move(request), deadline);
  }

 private:
  const Store store_ = Store::in_memory();
  std::atomic<int> silent_for_{20};
};

TEST(GroupLifetime, AStartBearsAStoreThatStandsStill) {
  const Store store = sinew::StoreAccess::make(std::make_shared<SlowStore>());
  run_ranks(2, [&](int rank) {
    sinew::internal::AssemblyRequest request;
    request.store = store;
    request.group = "group";
    request.rank = rank;
    request.size = 2;
    request.deadline = sinew::internal::Clock::system().now() + 120s;
    const absl::StatusOr<Store> met = sinew::internal::assemble(request);
    ASSERT_TRUE(met.ok()) << met.status();
    const absl::Status connected = sinew::internal::connect_together(
        request, *met, [](const sinew::internal::Health& health) { EXPECT_TRUE(health().ok()); });
    EXPECT_TRUE(connected.ok()) << connected;
  });
}

TEST(GroupLifetime, AStartThatIsLateForItsStoreSaysWhoServesIt) {
  sinew::internal::AssemblyRequest request;
  request.store = sinew::StoreAccess::make(std::make_shared<SlowStore>());
  request.group = "group";
  request.rank = 1;
  request.size = 2;
  request.deadline = sinew::internal::Clock::system().now();
  request.store_server = 0;
  const absl::StatusOr<Store> met = sinew::internal::assemble(request);
  EXPECT_EQ(met.status(),
            absl::DeadlineExceededError("rank 0, which serves the store of the group 'group', does "
                                        "not answer: it does not answer"));
}

// All have met; then one cannot listen where it is to.
TEST(GroupLifetime, ABackendThatDoesNotStartAtOneRankIsToldToAll) {
  const Ranks ranks(3);
  run_ranks(3, [&](int rank) {
    GroupOptions options = ranks.options(rank);
    // Of a network for documentation: nobody has it.
    if (rank == 1) options.bind_address = "192.0.2.1";
    options.allow_unencrypted = true;
    const RpcError error = error_of([&] { init_process_group(options); });
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
    EXPECT_THAT(error.message(),
                HasSubstr("the backend gloo of the group 'default' did not start"));
    EXPECT_THAT(error.message(), ::testing::Not(HasSubstr("Exception raised from")));
    if (rank == 1) return;
    EXPECT_THAT(error.message(), HasSubstr("rank 1 has given up the start of the group 'default'"));
  });
  ranks.run([](const ProcessGroup& group) { group.barrier(); });
}

TEST(GroupLifetime, ABackendThatThisBuildHasNotIsThatAtAllRanks) {
  const Ranks ranks(2);
  run_ranks(2, [&](int rank) {
    GroupOptions options = ranks.options(rank);
    options.backend = "cpu:gloo,cuda:nccl";
    EXPECT_EQ(error_of([&] { init_process_group(options); }).code(), ErrorCode::kUnimplemented);
  });
}

/// What a rank does once all have met; null: it is gone.
struct Part {
  std::function<void(const sinew::internal::Health& health)> connect;
  std::chrono::nanoseconds timeout = 120s;
  std::function<void()> and_then = [] {};
};

/// What each rank hears.
std::vector<absl::Status> connect(const std::vector<Part>& parts) {
  const Store store = Store::in_memory();
  const auto size = static_cast<int>(parts.size());
  std::vector<absl::Status> heard(parts.size());
  run_ranks(size, [&](int rank) {
    const Part& own = parts[static_cast<std::size_t>(rank)];
    if (own.connect == nullptr) return;
    sinew::internal::AssemblyRequest request;
    request.store = store;
    request.group = "group";
    request.rank = rank;
    request.size = size;
    request.deadline = sinew::internal::Clock::system().now() + own.timeout;
    heard[static_cast<std::size_t>(rank)] =
        sinew::internal::connect_together(request, store, own.connect);
    own.and_then();
  });
  return heard;
}

void connects(const sinew::internal::Health&) {}
/// As a backend that waits for another rank.
void waits(const sinew::internal::Health& health) {
  for (;;) {
    if (const absl::Status status = health(); !status.ok()) sinew::internal::throw_error(status);
    std::this_thread::yield();
  }
}

TEST(GroupLifetime, NobodyIsConnectedBeforeAllAre) {
  std::promise<void> first;
  const auto first_is_through = first.get_future();
  const auto last = [&](const sinew::internal::Health&) {
    EXPECT_EQ(first_is_through.wait_for(300ms), std::future_status::timeout);
  };
  const auto heard = connect({{connects, 120s, [&] { first.set_value(); }}, {last}});
  for (const absl::Status& status : heard) EXPECT_EQ(status, absl::OkStatus());
}

TEST(GroupLifetime, WhoCannotConnectIsNamedWithItsReason) {
  const auto fails = [](const sinew::internal::Health&) { throw std::runtime_error("no device"); };
  // One waits for it, the other one is through.
  const auto heard = connect({{waits}, {connects}, {fails}});
  for (const int rank : {0, 1}) {
    const absl::Status& status = heard[static_cast<std::size_t>(rank)];
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("rank 2 has given up the start of the group 'group': std::runtime_error: "
                          "no device"));
  }
  EXPECT_EQ(std::string(heard[2].message()), "std::runtime_error: no device");
}

TEST(GroupLifetime, WhoIsGoneBeforeItConnectsIsNamed) {
  const auto waits_in_vain = [](const sinew::internal::Health&) {
    throw RpcError(ErrorCode::kDeadlineExceeded, "a key has not come");
  };
  const absl::Status heard = connect({{waits_in_vain}, {nullptr}})[0];
  EXPECT_EQ(heard.code(), absl::StatusCode::kDeadlineExceeded) << heard;
  EXPECT_THAT(std::string(heard.message()), HasSubstr("rank 1 of 2 has not begun to connect"));
}

TEST(GroupLifetime, WhoDoesNotConnectInTimeIsNamed) {
  for (const absl::Status& status : connect({{connects, 3s}, {waits}})) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("rank 1 of 2 has not connected with all others"));
  }
}

TEST(GroupLifetime, RanksThatStartWithOtherTermsAreAllTold) {
  const Ranks ranks(2);
  run_ranks(2, [&](int rank) {
    GroupOptions options = ranks.options(rank);
    if (rank == 1) options.backend = "cpu:gloo,cuda:nccl";
    const RpcError error = error_of([&] { init_process_group(options); });
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
    EXPECT_THAT(error.message(), AllOf(HasSubstr("rank 1 with"), HasSubstr("cuda:nccl")));
  });
}

// It is not the group's to close.
TEST(GroupLifetime, AStoreOfTheUsersGoesOnListening) {
  const Store server = Store::tcp("127.0.0.1:0", Store::TcpRole::kServer);
  GroupOptions options = Ranks(1).options(0);
  options.store = server;
  init_process_group(options).barrier();
  options.world_size = 2;
  options.timeout = 100ms;
  EXPECT_EQ(error_of([&] { init_process_group(options); }).code(), ErrorCode::kDeadlineExceeded);
  Store::tcp(absl::StrCat("127.0.0.1:", server.port()), Store::TcpRole::kClient).set("key", "late");
  EXPECT_EQ(server.get("key"), "late");
}

}  // namespace
