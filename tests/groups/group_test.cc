// Groups whose ranks are threads of one process: what they do when ranks disagree, or pass tensors
// that Gloo does not take.

#include <chrono>
#include <future>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sinew/groups/internal/c10d_access.h"
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
using sinew::testing::error_of;
using sinew::testing::Ranks;
using ::testing::AllOf;
using ::testing::HasSubstr;

namespace {

TEST(Group, NonContiguousTensorsAreReducedAsTheyLook) {
  Ranks(3).run([](const ProcessGroup& group) {
    const at::Tensor memory = at::arange(24, at::kFloat).view({4, 6}) + group.rank();
    const at::Tensor view = memory.t().slice(0, 1, 6, 2);
    const at::Tensor expected = view.clone() * 3 - 3 * group.rank() + 3;
    const at::Tensor untouched = memory.t().slice(0, 0, 6, 2).clone();
    group.all_reduce(view);
    EXPECT_TRUE(view.equal(expected)) << view;
    EXPECT_TRUE(memory.t().slice(0, 0, 6, 2).equal(untouched));

    const at::Tensor column = at::zeros({3, 2}, at::kLong).select(1, 1);
    if (group.rank() == 1) column.copy_(at::tensor({7, 8, 9}));
    group.broadcast(column, 1);
    EXPECT_TRUE(column.equal(at::tensor({7, 8, 9}, at::kLong)));

    std::vector<at::Tensor> gathered;
    const at::Tensor rows = at::zeros({5, 3}, at::kInt);
    for (int rank = 0; rank < 3; ++rank) gathered.push_back(rows.select(1, rank));
    group.all_gather(gathered, at::full({10}, group.rank() + 1, at::kInt).slice(0, 0, 10, 2));
    EXPECT_TRUE(rows.equal(at::tensor({1, 2, 3}, at::kInt).expand({5, 3})));
  });
}

TEST(Group, ViewsAreFilledByEveryFunction) {
  Ranks(3).run([](const ProcessGroup& group) {
    const int own = group.rank();
    const auto columns = [](const at::Tensor& memory) {
      std::vector<at::Tensor> views;
      for (int column = 0; column < 3; ++column) views.push_back(memory.select(1, column));
      return views;
    };
    const auto full = [](int value) { return at::full({4}, value, at::kInt); };
    const at::Tensor by_rank = at::tensor({0, 1, 2}, at::kInt).expand({4, 3});

    const at::Tensor gathered = at::full({4, 3}, -1, at::kInt);
    group.gather(own == 1 ? columns(gathered) : std::vector<at::Tensor>(), full(own), 1);
    EXPECT_TRUE(gathered.equal(own == 1 ? by_rank : at::full({4, 3}, -1, at::kInt)));

    const at::Tensor scattered = at::full({4, 3}, -1, at::kInt);
    group.scatter(scattered.select(1, 2),
                  own == 2 ? columns(by_rank.clone()) : std::vector<at::Tensor>(), 2);
    EXPECT_TRUE(scattered.select(1, 2).equal(full(own)));
    EXPECT_TRUE(scattered.select(1, 1).equal(full(-1)));

    const at::Tensor exchanged = at::full({4, 3}, -1, at::kInt);
    group.all_to_all(columns(exchanged), {full(own), full(own), full(own)});
    EXPECT_TRUE(exchanged.equal(by_rank));

    const at::Tensor reduced = at::full({4, 3}, own, at::kInt);
    group.reduce(reduced.select(1, 0), 0);
    EXPECT_TRUE(reduced.select(1, 0).equal(full(own == 0 ? 3 : own)));
    const at::Tensor part = at::full({4, 3}, -1, at::kInt);
    group.reduce_scatter(part.select(1, 1), columns(by_rank.clone()));
    EXPECT_TRUE(part.select(1, 1).equal(full(3 * own)));

    const at::Tensor received = at::full({4, 3}, -1, at::kInt);
    const Future<void> sent = group.isend(by_rank.clone().select(1, own), (own + 1) % 3);
    group.recv(received.select(1, 1), (own + 2) % 3);
    sent.wait();
    EXPECT_TRUE(received.select(1, 1).equal(full((own + 2) % 3)));

    const at::Tensor numbers = at::complex(at::ones({2}), at::full({2}, own, at::kFloat));
    group.all_reduce(numbers.conj());
    EXPECT_TRUE(at::real(numbers).equal(at::full({2}, 3.0)));
    EXPECT_TRUE(at::imag(numbers).equal(at::full({2}, 3.0)));
  });
}

TEST(Group, HalvesAreSummedInSinglePrecision) {
  Ranks(3).run([](const ProcessGroup& group) {
    const at::Tensor mean = at::full({2}, 60'000, at::kHalf);
    group.all_reduce(mean, ReduceOp::kAverage);
    EXPECT_TRUE(mean.equal(at::full({2}, 60'000, at::kHalf))) << mean;
    // In half precision 2048 + 1 is 2048.
    const at::Tensor sum = at::zeros({2}, at::kHalf);
    const at::Tensor part = at::full({2}, group.rank() == 0 ? 2048 : 1, at::kHalf);
    group.reduce_scatter(sum, {part, part, part});
    EXPECT_TRUE(sum.equal(at::full({2}, 2050, at::kHalf))) << sum;
  });
}

TEST(Group, MessagesOfOtherTypesAndSizesDoNotMeet) {
  Ranks(2).run([](const ProcessGroup& group) {
    if (group.rank() == 1) {
      const std::vector<Future<void>> sent{group.isend(at::full({2}, 7, at::kInt), 0),
                                           group.isend(at::full({3}, 8.5), 0),
                                           group.isend(at::full({2}, 2.5), 0)};
      sinew::wait_all(sent);
      return;
    }
    const at::Tensor two = at::zeros({2});
    group.recv(two, 1);
    EXPECT_TRUE(two.equal(at::full({2}, 2.5))) << two;
    const at::Tensor three = at::zeros({3});
    group.recv(three, 1);
    EXPECT_TRUE(three.equal(at::full({3}, 8.5))) << three;
    const at::Tensor whole = at::zeros({2}, at::kInt);
    group.recv(whole, 1);
    EXPECT_TRUE(whole.equal(at::full({2}, 7, at::kInt))) << whole;
  });
}

TEST(Group, TensorsThatRequireGradientsAndEmptyOnes) {
  Ranks(2).run([](const ProcessGroup& group) {
    const at::Tensor leaf = at::ones({4}).set_requires_grad(true);
    group.all_reduce(leaf);
    EXPECT_TRUE(leaf.equal(at::full({4}, 2.0)));
    EXPECT_TRUE(leaf.is_leaf());
    const at::Tensor none = at::empty({0, 3});
    group.all_reduce(none);
    group.broadcast(none, 0);
    group.all_gather({at::empty({0, 3}), at::empty({0, 3})}, none);
    group.reduce_scatter(none, {none, none});
    group.all_to_all({at::empty({0}), at::empty({0})}, {at::empty({0}), at::empty({0})});
    const at::Tensor scalar = at::scalar_tensor(group.rank() + 1.0);
    group.all_reduce(scalar);
    EXPECT_EQ(scalar.item<float>(), 3.0F);
  });
}

TEST(Group, RanksThatDisagreeAreAllToldAndTheGroupGoesOn) {
  Ranks(3).run([](const ProcessGroup& group) {
    const bool odd = group.rank() == 1;
    const RpcError type =
        error_of([&] { group.all_reduce(at::zeros({4}, odd ? at::kDouble : at::kFloat)); });
    EXPECT_EQ(type.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(type.message(), AllOf(HasSubstr("rank 1 calls all_reduce(SUM) of float64 [4]"),
                                      HasSubstr("ranks 0 and 2 call all_reduce(SUM) of float32")));
    const RpcError size = error_of([&] { group.broadcast(at::zeros({odd ? 5 : 4}), 0); });
    EXPECT_THAT(size.message(), HasSubstr("rank 1 calls broadcast of float32 [5] with root 0"));
    const RpcError root = error_of([&] { group.broadcast(at::zeros({7}), odd ? 1 : 0); });
    EXPECT_THAT(root.message(), HasSubstr("with root 1"));
    const RpcError op =
        error_of([&] { group.all_reduce(at::zeros({9}), odd ? ReduceOp::kMax : ReduceOp::kSum); });
    EXPECT_THAT(op.message(), HasSubstr("all_reduce(MAX)"));
    const RpcError function = error_of([&] {
      if (odd) {
        group.barrier();
      } else {
        group.all_reduce(at::zeros({11}));
      }
    });
    EXPECT_THAT(function.message(), HasSubstr("rank 1 calls barrier"));
    const at::Tensor fine = at::ones({3});
    group.all_reduce(fine);
    EXPECT_TRUE(fine.equal(at::full({3}, 3.0)));
  });
}

// All were compared before, but not against each other.
TEST(Group, RanksThatDisagreeLaterAreAllTold) {
  Ranks(3).run([](const ProcessGroup& group) {
    group.all_reduce(at::zeros({4}, at::kFloat));
    group.all_reduce(at::zeros({4}, at::kInt));
    group.all_reduce(at::zeros({8}, at::kFloat));
    const auto call = [&] {
      group.all_reduce(group.rank() == 2 ? at::zeros({4}, at::kInt) : at::zeros({4}, at::kFloat));
    };
    const RpcError error = error_of(call);
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
    EXPECT_THAT(error.message(), HasSubstr("rank 2 calls all_reduce(SUM) of int32 [4]"));
    const RpcError again = error_of(call);
    EXPECT_EQ(again.code(), ErrorCode::kFailedPrecondition);
    EXPECT_THAT(again.message(), HasSubstr("has failed before"));
  });
}

// One has seen it before, the other one has not.
TEST(Group, OldAndNewShapesDoNotMeet) {
  Ranks(2).run([](const ProcessGroup& group) {
    group.all_reduce(at::zeros({4}));
    const RpcError error = error_of([&] { group.all_reduce(at::zeros({group.rank() + 4})); });
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
    EXPECT_THAT(error.message(), HasSubstr("rank 1 calls all_reduce(SUM) of float32 [5]"));
  });
}

TEST(Group, UnevenAllToAll) {
  Ranks(3).run([](const ProcessGroup& group) {
    const int own = group.rank();
    for (int round = 0; round < 2; ++round) {
      std::vector<at::Tensor> inputs;
      std::vector<at::Tensor> outputs;
      for (int rank = 0; rank < 3; ++rank) {
        inputs.push_back(at::full({own + 2 * rank}, 10 * own + rank, at::kShort));
        outputs.push_back(at::zeros({rank + 2 * own}, at::kShort));
      }
      group.all_to_all(outputs, inputs);
      for (int rank = 0; rank < 3; ++rank) {
        EXPECT_TRUE(outputs[static_cast<std::size_t>(rank)].equal(
            at::full({rank + 2 * own}, 10 * rank + own, at::kShort)));
      }
    }
    // Compared pair by pair.
    const RpcError error = error_of([&] {
      group.all_to_all({at::zeros({1}), at::zeros({1}), at::zeros({1})},
                       {at::zeros({1}), at::zeros({1}), at::zeros({own == 0 ? 2 : 1})});
    });
    EXPECT_THAT(error.message(), HasSubstr("rank 0 has 2 elements for rank 2, which expects 1"));
    // Not before it runs, since the function was compared already; rank 0 has what is its own, and
    // hears of it with the next one.
    const auto ones = [&](int odd) {
      std::vector<at::Tensor> tensors = at::zeros({3, 1}, at::kShort).unbind();
      if (own == odd) tensors[1] = at::zeros({2}, at::kShort);
      return tensors;
    };
    const RpcError later = error_of([&] {
      group.all_to_all(ones(-1), ones(2));
      group.barrier();
    });
    EXPECT_THAT(later.message(), HasSubstr("rank 2 has 2 elements for rank 1, which expects 1"));
  });
}

TEST(Group, OptionsThatMakeNoSense) {
  const Ranks ranks(2);
  const auto refused = [&](const std::function<void(GroupOptions&)>& change) {
    GroupOptions options = ranks.options(0);
    change(options);
    return error_of([&] { init_process_group(options); });
  };
  EXPECT_THAT(refused([](GroupOptions& o) { o.rank = 2; }).message(),
              HasSubstr("the rank 2 of the group 'default' is not among 0 to 1"));
  EXPECT_THAT(refused([](GroupOptions& o) { o.world_size.reset(); }).message(),
              HasSubstr("set GroupOptions::rank and world_size"));
  EXPECT_THAT(refused([](GroupOptions& o) { o.backend = "glow"; }).message(),
              HasSubstr("names 'glow', which is none"));
  EXPECT_THAT(refused([](GroupOptions& o) { o.backend = "cuda:gloo"; }).message(),
              HasSubstr("gives cuda to gloo"));
  EXPECT_THAT(refused([](GroupOptions& o) { o.name = ""; }).message(),
              HasSubstr("the name of a group"));
  EXPECT_THAT(refused([](GroupOptions& o) { o.timeout = 0s; }).message(),
              HasSubstr("must be more than 0"));
  EXPECT_EQ(refused([](GroupOptions& o) { o.bind_address = "10.1.2.3"; }).code(),
            ErrorCode::kPermissionDenied);
  EXPECT_EQ(refused([](GroupOptions& o) {
              o.store.reset();
              o.init_method = "tcp://10.1.2.3:1234";
            }).code(),
            ErrorCode::kPermissionDenied);
  EXPECT_EQ(refused([](GroupOptions& o) {
              o.store.reset();
              o.init_method = "inproc://x";
            }).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([] { ProcessGroup().barrier(); }).code(), ErrorCode::kFailedPrecondition);
}

TEST(Group, TensorsAndRanksThatMakeNoSense) {
  Ranks(2).run([](const ProcessGroup& group) {
    const auto code = [](const std::function<void()>& f) { return error_of(f).code(); };
    const at::Tensor one = at::ones({1});
    EXPECT_EQ(code([&] { group.broadcast(one, 2); }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code([&] { group.send(one, group.rank()); }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code([&] { group.send(one, 1 - group.rank(), -1); }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code([&] { group.all_reduce(at::Tensor()); }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code([&] { group.all_reduce(one.expand({4})); }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code([&] {
                group.all_reduce(at::ones({2, 2}).to_sparse());
              }),
              ErrorCode::kInvalidArgument);
    EXPECT_EQ(code([&] { group.all_gather({one}, one); }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code([&] {
                group.all_gather({one, at::ones({2})}, one);
              }),
              ErrorCode::kInvalidArgument);
    EXPECT_EQ(code([&] { group.scatter(one, {one}, 1 - group.rank()); }),
              ErrorCode::kInvalidArgument);
    EXPECT_EQ(code([&] { group.all_reduce(one, ReduceOp::kSum, {0s}); }),
              ErrorCode::kInvalidArgument);
    EXPECT_EQ(code([&] { group.all_reduce(at::ones({1}, at::kLong), ReduceOp::kAverage); }),
              ErrorCode::kUnimplemented);
    EXPECT_EQ(code([&] { group.new_group({}); }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code([&] { group.new_group({0, 2}); }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code([&] { group.new_group({0, 0}); }), ErrorCode::kInvalidArgument);
    group.barrier();
  });
}

TEST(Group, AsynchronousOperationsKeepTheirOrder) {
  Ranks(3).run([](const ProcessGroup& group) {
    std::vector<Future<void>> futures;
    std::vector<at::Tensor> tensors;
    for (int step = 0; step < 40; ++step) {
      // Some are compared first, some are not.
      tensors.push_back(at::full({1 + step % 7}, step + group.rank(), at::kLong));
      futures.push_back(group.all_reduce_async(tensors.back()));
    }
    sinew::wait_all(futures);
    for (int step = 0; step < 40; ++step) {
      EXPECT_TRUE(tensors[static_cast<std::size_t>(step)].equal(
          at::full({1 + step % 7}, 3 * step + 3, at::kLong)));
    }
  });
}

TEST(Group, AContinuationMayCallTheGroup) {
  Ranks(2).run([](const ProcessGroup& group) {
    const at::Tensor tensor = at::ones({2});
    const Future<void> twice =
        group.all_reduce_async(tensor).then([&] { group.all_reduce(tensor); });
    twice.wait();
    EXPECT_TRUE(tensor.equal(at::full({2}, 4.0)));
  });
}

TEST(Group, MessagesWithTagsAndFromAnybody) {
  Ranks(3).run([](const ProcessGroup& group) {
    if (group.rank() == 0) {
      std::multiset<int> senders;
      for (int message = 0; message < 4; ++message) {
        const at::Tensor tensor = at::zeros({3});
        const int source = group.recv(tensor, std::nullopt, 7);
        EXPECT_TRUE(tensor.equal(at::full({3}, static_cast<float>(source))));
        senders.insert(source);
      }
      EXPECT_EQ(senders, (std::multiset<int>{1, 1, 2, 2}));
      // Another tag, sent first.
      for (const int from : {1, 2}) {
        const at::Tensor tensor = at::zeros({2}, at::kBFloat16);
        EXPECT_EQ(group.recv(tensor.slice(0, 0, 2), from, 3), from);
        EXPECT_TRUE(tensor.equal(at::full({2}, from, at::kBFloat16)));
      }
    } else {
      std::vector<Future<void>> sent;
      sent.push_back(group.isend(at::full({2}, group.rank(), at::kBFloat16), 0, 3));
      for (int message = 0; message < 2; ++message) {
        sent.push_back(group.isend(at::full({3}, static_cast<float>(group.rank())), 0, 7));
      }
      sinew::wait_all(sent);
    }
  });
}

// More than there are threads: those that come last are done first.
TEST(Group, ManyReceivesWaitAtOnce) {
  constexpr int kMessages = 100;
  Ranks(2).run([](const ProcessGroup& group) {
    if (group.rank() == 0) {
      std::vector<at::Tensor> tensors;
      std::vector<Future<int>> received;
      for (int tag = 0; tag < kMessages; ++tag) {
        tensors.push_back(at::zeros({1}, at::kInt));
        received.push_back(group.irecv(tensors.back(), 1, tag));
      }
      group.send(at::zeros({1}), 1, kMessages);
      for (int tag = kMessages - 1; tag >= 0; --tag) {
        received[static_cast<std::size_t>(tag)].wait();
        EXPECT_EQ(tensors[static_cast<std::size_t>(tag)].item<int>(), tag);
        group.send(at::zeros({1}), 1, kMessages);
      }
    } else {
      group.recv(at::zeros({1}), 0, kMessages);
      for (int tag = kMessages - 1; tag >= 0; --tag) {
        group.send(at::full({1}, tag, at::kInt), 0, tag);
        group.recv(at::zeros({1}), 0, kMessages);
      }
    }
  });
}

TEST(Group, TooManyOperationsAtOnceAreRefusedAndHarmNone) {
  std::promise<void> is_full;
  const auto full = is_full.get_future().share();
  Ranks(2).run([&](const ProcessGroup& group) {
    if (group.rank() == 0) {
      const at::Tensor tensor = at::zeros({1});
      std::vector<Future<int>> received;
      const RpcError error = error_of([&] {
        for (int tag = 0; tag < 2000; ++tag) received.push_back(group.irecv(tensor, 1, tag));
      });
      EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted) << error.what();
      EXPECT_EQ(received.size(), 1000U);
      is_full.set_value();
      sinew::wait_all(received);
    } else {
      full.wait();
      for (int tag = 0; tag < 1000; ++tag) group.send(at::zeros({1}), 0, tag);
    }
    // Gloo resets connections that are closed before all is read.
    group.barrier();
  });
}

TEST(Group, GroupsOfSomeRanks) {
  Ranks(4).run([](const ProcessGroup& group) {
    GroupOptions options;
    options.timeout = 60s;
    const ProcessGroup odd = group.new_group({3, 1}, options);
    const ProcessGroup low = group.new_group({0, 1, 2}, options);
    ASSERT_EQ(odd.valid(), group.rank() % 2 == 1);
    ASSERT_EQ(low.valid(), group.rank() < 3);
    if (odd.valid()) {
      EXPECT_EQ(odd.rank(), group.rank() == 3 ? 0 : 1);
      EXPECT_EQ(odd.name(), "default/0");
      const at::Tensor sum = at::full({1}, group.rank(), at::kInt);
      odd.all_reduce(sum);
      EXPECT_EQ(sum.item<int>(), 4);
    }
    if (low.valid()) {
      const at::Tensor sum = at::full({1}, group.rank(), at::kInt);
      low.all_reduce(sum);
      EXPECT_EQ(sum.item<int>(), 3);
      const ProcessGroup alone = low.new_group({1}, options);
      EXPECT_EQ(alone.valid(), group.rank() == 1);
      if (alone.valid()) alone.all_reduce(sum);
    }
    group.barrier();
  });
}

TEST(Group, LibTorchSeesAnOrdinaryGroup) {
  Ranks(2).run([](const ProcessGroup& group) {
    const auto c10d = sinew::internal::c10d_group_of(group, c10::DeviceType::CPU);
    std::vector<at::Tensor> tensors{at::full({3}, group.rank() + 1.0)};
    const auto work = c10d->allreduce(tensors);
    const auto future = work->getFuture();
    EXPECT_TRUE(work->wait());
    EXPECT_TRUE(tensors[0].equal(at::full({3}, 3.0)));
    future->wait();
    EXPECT_TRUE(future->value().toTensorVector()[0].equal(tensors[0]));
    std::vector<at::Tensor> odd{at::zeros({group.rank() + 1})};
    EXPECT_ANY_THROW(c10d->broadcast(odd)->wait());
    EXPECT_EQ(
        error_of([&] { sinew::internal::c10d_group_of(group, c10::DeviceType::CUDA); }).code(),
        ErrorCode::kUnimplemented);
  });
}

}  // namespace
