#include "sinew/autograd/context.h"

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ATen/ATen.h"
#include "ATen/core/grad_mode.h"
#include "sinew/sinew.h"
#include "sinew/tests/support/cluster.h"

using sinew::ErrorCode;
using sinew::RpcError;
using sinew::autograd::backward;
using sinew::autograd::BackwardOptions;
using sinew::autograd::Context;
using sinew::autograd::gradient_of;
using sinew::autograd::gradients;
using sinew::testing::error_of;
using sinew::testing::eventually;
using ::testing::HasSubstr;

namespace testgrad {

using at::Tensor;

/// What each worker keeps: leaves by name.
std::map<std::string, Tensor>& leaves() {
  static std::mutex mutex;
  static auto& all = *new std::map<std::uint64_t, std::map<std::string, Tensor>>();
  const std::lock_guard<std::mutex> lock(mutex);
  return all[sinew::current_worker().info().incarnation.value];
}

Tensor make_leaf(const std::string& name, const Tensor& value) {
  return leaves()[name] = value.detach().clone().set_requires_grad(true);
}
Tensor scale_by_leaf(const std::string& name, const Tensor& input) {
  return leaves()[name] * input;
}
Tensor multiply(const Tensor& a, const Tensor& b) { return a * b; }
std::vector<Tensor> split(const Tensor& a) { return {a * 1, a * 2, a.detach() * 3}; }
Tensor sum_all(const std::vector<Tensor>& all) {
  Tensor sum = at::zeros({});
  for (const Tensor& one : all) sum = sum + one.sum();
  return sum;
}
Tensor get(const sinew::RRef<Tensor>& rref) { return rref.to_here(); }
Tensor nested(const Tensor& a, int to, int hops);
sinew::Future<Tensor> later(const Tensor& a, int to);
/// Keeps the square of `a`, computed at `to`, and returns it.
Tensor store(const std::string& name, const Tensor& a, int to);
Tensor stored(const std::string& name) { return leaves().at(name) * 1; }
bool grad_mode() { return at::GradMode::is_enabled(); }
bool requires_grad(const Tensor& a) { return a.requires_grad(); }
bool has_context() { return Context::current_or_none().has_value(); }
Tensor gradient(const std::string& name, const sinew::autograd::ContextId& context) {
  return gradient_of(sinew::current_worker(), context, leaves()[name]);
}
std::int64_t counter(const std::string& name) { return sinew::current_worker().counters()[name]; }

}  // namespace testgrad
SINEW_METHOD(testgrad::make_leaf, testgrad::scale_by_leaf, testgrad::multiply, testgrad::split,
             testgrad::sum_all, testgrad::get, testgrad::nested, testgrad::later, testgrad::store,
             testgrad::stored, testgrad::grad_mode, testgrad::requires_grad, testgrad::has_context,
             testgrad::gradient, testgrad::counter);

namespace testgrad {

/// Through `hops` more workers.
Tensor nested(const Tensor& a, int to, int hops) {
  const sinew::Worker self = sinew::current_worker();
  if (hops == 0) return a * 2;
  return self.peer(to).call<&nested>(a * 3, (to + 1) % 3, hops - 1) + a;
}
sinew::Future<Tensor> later(const Tensor& a, int to) {
  return sinew::current_worker().peer(to).async<&multiply>(a, a).then(
      [](const Tensor& squared) { return squared * 2; });
}
Tensor store(const std::string& name, const Tensor& a, int to) {
  return leaves()[name] = sinew::current_worker().peer(to).call<&multiply>(a, a);
}

sinew::MethodTable methods() {
  sinew::MethodTable table;
  table.add<&make_leaf>()
      .add<&scale_by_leaf>()
      .add<&multiply>()
      .add<&split>()
      .add<&sum_all>()
      .add<&get>()
      .add<&nested>()
      .add<&later>()
      .add<&store>()
      .add<&stored>()
      .add<&grad_mode>()
      .add<&requires_grad>()
      .add<&has_context>()
      .add<&gradient>()
      .add<&counter>();
  return table;
}

}  // namespace testgrad

namespace {

using at::Tensor;

Tensor leaf(const Tensor& value) { return value.clone().set_requires_grad(true); }
Tensor random_leaf(at::IntArrayRef sizes) { return leaf(at::randn(sizes)); }

class Autograd : public sinew::testing::ClusterTest {
 protected:
  void SetUp() override {
    at::manual_seed(1);
    start(3, testgrad::methods());
  }
  bool all_zero(const std::string& counter) {
    for (int rank = 0; rank < 3; ++rank) {
      if (worker(rank).counters()[counter] != 0) return false;
    }
    return true;
  }
  bool clean() {
    return all_zero("autograd.contexts") && all_zero("autograd.passes") &&
           all_zero("autograd.sends") && all_zero("autograd.recvs");
  }
};

TEST_P(Autograd, WithoutACall) {
  Context context(worker(0));
  const Tensor a = random_leaf({3});
  const Tensor b = random_leaf({3});
  backward(context, {(a + b).sum()});
  EXPECT_TRUE(at::equal(gradient_of(context, a), at::ones({3})));
  EXPECT_TRUE(at::equal(gradient_of(context, b), at::ones({3})));
  EXPECT_EQ(gradients(context).size(), 2U);
  EXPECT_FALSE(a.grad().defined());
}

TEST_P(Autograd, ArgumentsAndResult) {
  for (const int to : {1, 0}) {
    Context context(worker(0));
    const Tensor a = random_leaf({3, 3});
    const Tensor b = random_leaf({3, 3});
    const Tensor product = worker(0).peer(to).call<&testgrad::multiply>(a, b);
    EXPECT_TRUE(product.requires_grad());
    EXPECT_FALSE(product.is_leaf());
    backward(context, {product.sum()});
    EXPECT_TRUE(at::equal(gradient_of(context, a), b));
    EXPECT_TRUE(at::equal(gradient_of(context, b), a));
    EXPECT_EQ(gradients(context).size(), 2U);
    EXPECT_FALSE(a.grad().defined());
  }
  EXPECT_TRUE(eventually([&] { return clean(); }));
}

TEST_P(Autograd, LeafAtTheCallee) {
  worker(0).peer(1).call<&testgrad::make_leaf>("w", at::full({2}, 3.0));
  Context context(worker(0));
  const Tensor x = random_leaf({2});
  const Tensor y = worker(0).peer(1).call<&testgrad::scale_by_leaf>("w", x.detach());
  backward(context, {y.sum()});
  EXPECT_TRUE(gradients(context).empty());
  const Tensor gradient = worker(0).peer(1).call<&testgrad::gradient>("w", context.id());
  EXPECT_TRUE(at::allclose(gradient, x.detach()));
}

TEST_P(Autograd, RemoteAndToHere) {
  Context context(worker(0));
  const Tensor a = random_leaf({3});
  const Tensor b = random_leaf({3});
  const auto product = worker(0).peer(1).remote<&testgrad::multiply>(a, b);
  const auto through = worker(0).peer(2).call<&testgrad::get>(product);
  const Tensor loss = (product.to_here() + through * 2).sum();
  backward(context, {loss});
  EXPECT_TRUE(at::allclose(gradient_of(context, a), b * 3));
  EXPECT_TRUE(at::allclose(gradient_of(context, b), a * 3));
}

TEST_P(Autograd, ContainersAndUnusedResults) {
  Context context(worker(0));
  const Tensor a = random_leaf({3});
  const std::vector<Tensor> parts = worker(0).peer(1).call<&testgrad::split>(a);
  EXPECT_FALSE(parts.at(2).requires_grad());
  worker(0).peer(2).call<&testgrad::multiply>(parts.at(0), parts.at(0));
  const Tensor loss = worker(0).peer(2).call<&testgrad::sum_all>(
      std::vector<Tensor>{parts.at(1), at::ones({2}), parts.at(1)});
  backward(context, {loss});
  EXPECT_TRUE(at::allclose(gradient_of(context, a), at::full({3}, 4.0)));
}

TEST_P(Autograd, NestedCallsAndAsyncHandlers) {
  Context context(worker(0));
  const Tensor a = random_leaf({2});
  // Through workers 1, 2, 0, 1.
  const Tensor b = worker(0).peer(1).call<&testgrad::nested>(a, 2, 3);
  const Tensor c = worker(0).peer(1).call<&testgrad::later>(a, 2);
  const Tensor d = worker(0).peer(1).call<&testgrad::later>(a, 1);
  backward(context, {(b + c + d).sum()});
  // nested: ((2 * 3 + 1) * 3 + 1) * 3 + 1 = 67; later: 2 a^2 each.
  EXPECT_TRUE(at::allclose(gradient_of(context, a), 67 + 8 * a.detach()));
}

TEST_P(Autograd, ContinuationsInheritTheContext) {
  Context context(worker(0));
  const Tensor a = random_leaf({2});
  const sinew::Worker self = worker(0);
  const Tensor loss = self.peer(1)
                          .async<&testgrad::multiply>(a, a)
                          .then([self](const Tensor& squared) {
                            return self.peer(2).async<&testgrad::multiply>(squared, squared);
                          })
                          .take();
  backward(context, {loss.sum()});
  EXPECT_TRUE(at::allclose(gradient_of(context, a), 4 * a.detach().pow(3)));
}

TEST_P(Autograd, ServingThreadsHaveTheContextOnlyDuringTheCall) {
  EXPECT_FALSE(worker(0).peer(1).call<&testgrad::has_context>());
  {
    Context context(worker(0));
    EXPECT_EQ(Context::current(), context.id());
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(worker(0).peer(1).call<&testgrad::has_context>());
  }
  EXPECT_FALSE(Context::current_or_none().has_value());
  EXPECT_EQ(error_of([] { Context::current(); }).code(), ErrorCode::kFailedPrecondition);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(worker(0).peer(1).call<&testgrad::has_context>());
}

// A thread pool that calls on behalf of the thread with the context is a mistake that nothing else
// shows: gradients are missing, without an error.
TEST_P(Autograd, WarnsOnceOfThreadsOutsideOfTheContext) {
  const Tensor a = random_leaf({2});
  const auto said = [&](const std::function<void()>& call) {
    ::testing::internal::CaptureStderr();
    std::thread(call).join();
    return ::testing::internal::GetCapturedStderr();
  };
  const auto multiply = [&] { worker(0).peer(1).call<&testgrad::multiply>(a, a); };
  EXPECT_EQ(said(multiply), "") << "there is no context";
  const Context context(worker(0));
  EXPECT_EQ(said([&] { worker(0).peer(1).call<&testgrad::has_context>(); }), "");
  EXPECT_EQ(said([&] { worker(1).peer(2).call<&testgrad::multiply>(a, a); }), "")
      << "the context is another worker's";
  EXPECT_EQ(said([&] {
              const at::NoGradGuard none_wanted;
              multiply();
            }),
            "");
  EXPECT_EQ(said([&] {
              const sinew::autograd::ContextScope scope(worker(0), context.id());
              multiply();
            }),
            "");
  const std::string warning = said(multiply);
  EXPECT_THAT(warning, HasSubstr("testgrad::multiply"));
  EXPECT_THAT(warning, HasSubstr("worker1"));
  EXPECT_THAT(warning, HasSubstr("ContextScope"));
  EXPECT_EQ(said(multiply), "") << "once";
}

TEST_P(Autograd, GradModeTravels) {
  Context context(worker(0));
  const Tensor a = random_leaf({2});
  EXPECT_TRUE(worker(0).peer(1).call<&testgrad::grad_mode>());
  {
    const at::NoGradGuard guard;
    EXPECT_FALSE(worker(0).peer(1).call<&testgrad::grad_mode>());
    EXPECT_TRUE(worker(0).peer(1).call<&testgrad::requires_grad>(a));
    EXPECT_FALSE(worker(0).peer(1).call<&testgrad::multiply>(a, a).requires_grad());
  }
  EXPECT_TRUE(worker(0).peer(1).call<&testgrad::grad_mode>());
  EXPECT_EQ(worker(0).counters()["autograd.sends"], 0);
}

TEST_P(Autograd, MessagesOfAPass) {
  const auto calls = [&] {
    std::int64_t sum = 0;
    for (int rank = 0; rank < 3; ++rank) sum += worker(rank).counters()["autograd.calls"];
    return sum;
  };
  // Each call is two messages.
  const auto calls_of = [&](const std::function<Tensor(const Tensor&)>& model) {
    Context context(worker(0));
    const Tensor loss = model(random_leaf({2})).sum();
    const std::int64_t before = calls();
    backward(context, {loss});
    return calls() - before;
  };
  const auto at = [&](int to, const Tensor& a) {
    return worker(0).peer(to).call<&testgrad::multiply>(a, a);
  };
  EXPECT_EQ(calls_of([&](const Tensor& a) { return a * 2; }), 0);
  EXPECT_EQ(calls_of([&](const Tensor& a) { return at(1, a); }), 1);
  EXPECT_EQ(calls_of([&](const Tensor& a) { return at(2, at(1, a)); }), 2);
  // The worker answers with each gradient, since nobody else has any for it.
  EXPECT_EQ(calls_of([&](const Tensor& a) { return at(1, at(1, at(1, a))); }), 3);
  EXPECT_EQ(calls_of([&](const Tensor& a) { return at(1, at(1, a)) + at(2, at(2, a)); }), 4);
  // Worker 1 has to wait for worker 2 as well, so it tells of the end by its answer.
  EXPECT_EQ(calls_of([&](const Tensor& a) {
              return at(1, worker(0).peer(1).call<&testgrad::nested>(a, 2, 1));
            }),
            6);
  // Worker 1 calls worker 2.
  EXPECT_EQ(
      calls_of([&](const Tensor& a) { return worker(0).peer(1).call<&testgrad::nested>(a, 2, 1); }),
      2 + 2);
  EXPECT_EQ(calls_of([&](const Tensor& a) {
              for (int i = 0; i < 5; ++i) at(2, a);
              return at(1, a);
            }),
            1);
}

// What a reply says about the graph is not read when the reply is not.
TEST_P(Autograd, FactsThatDidNotComeAreAskedFor) {
  Context context(worker(0));
  const Tensor a = random_leaf({2});
  const auto unread = worker(0).peer(1).async<&testgrad::store>("it", a, 2);
  while (!unread.done()) std::this_thread::yield();
  const Tensor result = worker(0).peer(1).call<&testgrad::stored>("it");
  backward(context, {result.sum()});
  EXPECT_TRUE(at::allclose(gradient_of(context, a), 2 * a.detach()));
  // One call to each of the two, and the question.
  EXPECT_EQ(worker(0).counters()["autograd.calls"], 3);
}

TEST_P(Autograd, HooksRunOnce) {
  worker(0).peer(1).call<&testgrad::make_leaf>("w", at::full({2}, 3.0));
  Context context(worker(0));
  const Tensor a = random_leaf({2});
  int hooked = 0;
  a.register_hook([&](const Tensor& gradient) {
    ++hooked;
    return gradient * 2;
  });
  const Tensor received = worker(0).peer(1).call<&testgrad::multiply>(a, a);
  int received_hooked = 0;
  received.register_hook([&](const Tensor& gradient) {
    ++received_hooked;
    return gradient * 10;
  });
  backward(context, {(received * 2 + received * 3).sum() + a.sum()});
  EXPECT_EQ(hooked, 1);
  EXPECT_EQ(received_hooked, 1);
  EXPECT_TRUE(at::allclose(gradient_of(context, a), 2 * (50 * 2 * a.detach() + 1)));
}

TEST_P(Autograd, GradientsAreCopiedOnlyWhereTheyAreShared) {
  Context context(worker(0));
  const auto memory_of = [](const Tensor& leaf, std::vector<const void*>& seen) {
    leaf.register_hook([&seen](const Tensor& gradient) { seen.push_back(gradient.data_ptr()); });
  };
  const Tensor own = random_leaf({2});
  const Tensor a = random_leaf({2});
  const Tensor b = random_leaf({2});
  std::vector<const void*> own_memory;
  std::vector<const void*> shared_memory;
  memory_of(own, own_memory);
  memory_of(a, shared_memory);
  memory_of(b, shared_memory);
  const Tensor y = worker(0).peer(1).call<&testgrad::multiply>(own, own);
  backward(context, {(y + (a + b) * 2).sum()});
  ASSERT_EQ(own_memory.size(), 1U);
  ASSERT_EQ(shared_memory.size(), 2U);
  EXPECT_EQ(gradient_of(context, own).data_ptr(), own_memory[0]);
  EXPECT_EQ(shared_memory[0], shared_memory[1]);
  EXPECT_NE(gradient_of(context, a).data_ptr(), gradient_of(context, b).data_ptr());
}

TEST_P(Autograd, ManyThreadsWithAContextEach) {
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < 20; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 5; ++round) {
        Context context(worker(i % 3));
        const Tensor a = at::full({2}, i + 1.0).set_requires_grad(true);
        const Tensor b = worker(i % 3).peer((i + 1) % 3).call<&testgrad::nested>(a, (i + 2) % 3, 2);
        backward(context, {b.sum()});
        if (at::allclose(gradient_of(context, a), at::full({2}, 22.0))) ++right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 100);
  EXPECT_TRUE(eventually([&] { return clean(); }));
}

TEST_P(Autograd, BackwardAtTheOwnerOfAReference) {
  Context context(worker(0));
  const Tensor a = random_leaf({2});
  const auto sum = worker(0).peer(1).remote<&testgrad::sum_all>(std::vector<Tensor>{a, a});
  sum.backward(context);
  EXPECT_TRUE(at::allclose(gradient_of(context, a), at::full({2}, 2.0)));
}

TEST_P(Autograd, BadRoots) {
  Context context(worker(0));
  const Tensor a = random_leaf({2});
  const auto text = [&](const std::vector<Tensor>& roots) {
    const RpcError error = error_of([&] { backward(context, roots); });
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.message();
  };
  EXPECT_THAT(text({}), HasSubstr("at least one root"));
  EXPECT_THAT(text({at::ones({})}), HasSubstr("root 1 of backward() does not require"));
  EXPECT_THAT(text({a.sum(), a * 2}), HasSubstr("root 2 of backward() has 2 elements"));
  EXPECT_THAT(text({leaf(at::ones({}))}), HasSubstr("is a leaf"));
  EXPECT_THAT(text({Tensor()}), HasSubstr("is undefined"));
  EXPECT_THAT(text({at::complex(a, a).sum()}), HasSubstr("is complex"));
}

TEST_P(Autograd, UnknownContextsAndNestedOnes) {
  sinew::autograd::ContextId old;
  {
    Context context(worker(0));
    old = context.id();
    EXPECT_EQ(error_of([&] { Context inner(worker(0)); }).code(), ErrorCode::kFailedPrecondition);
  }
  const Tensor root = (random_leaf({}) * 2).sum();
  EXPECT_EQ(error_of([&] { backward(worker(0), old, {root}); }).code(), ErrorCode::kNotFound);
  EXPECT_EQ(error_of([&] { gradients(worker(1), old); }).code(), ErrorCode::kNotFound);
}

TEST_P(Autograd, SecondPassWithoutTheGraph) {
  Context context(worker(0));
  const Tensor a = random_leaf({2});
  const Tensor loss = worker(0).peer(1).call<&testgrad::multiply>(a, a).sum();
  backward(context, {loss});
  const Tensor before = gradient_of(context, a).clone();
  const RpcError error = error_of([&] { backward(context, {loss}); });
  EXPECT_THAT(error.message(), HasSubstr("failed at worker 'worker"));
  EXPECT_THAT(error.message(), HasSubstr("second time"));
  EXPECT_TRUE(at::equal(gradient_of(context, a), before));
  EXPECT_TRUE(eventually([&] { return all_zero("autograd.passes"); }));
}

SINEW_INSTANTIATE_CLUSTER_TEST(Autograd);

}  // namespace
