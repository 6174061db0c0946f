#include <torch/nn.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "sinew/parallel/distributed_data_parallel.h"
#include "sinew/tests/truth/programs.h"

namespace truthapp {

/// What a handler of this rank does.
std::function<void(double factor)>& turn() {
  static std::function<void(double factor)>& one = *new std::function<void(double factor)>;
  return one;
}
void take_turn(double factor) { turn()(factor); }

}  // namespace truthapp

namespace sinew::testing {
namespace {

using parallel::Callers;
using parallel::DdpOptions;
using parallel::DistributedDataParallel;

const char* const kOthers = "ranks reduce gradients of different passes together";

// ---- Passes that fail on one rank.

void throw_from(const at::Tensor& tensor) {
  tensor.register_hook([](const at::Tensor&) { throw std::runtime_error("a hook broke"); });
}

/// As a program that skips what has failed.
void ignore_failure(const std::function<void()>& f) {
  try {
    f();
  } catch (const std::exception&) {
  }
}

void fail_on_rank_0(const ProcessGroup& group, const Pass& pass, const at::Tensor& output) {
  if (group.rank() == 0) {
    ignore_failure([&] { pass.backward(output); });
  } else {
    must_refuse("failed on rank 0", [&] { pass.backward(output); });
  }
}

/// Rank 0's second pass fails before it has come to the module, and rank 0 goes on with `next`.
void fail_before_gradients(const ProcessGroup& group,
                           const std::function<void(DistributedDataParallel<Factors>& ddp)>& next) {
  DistributedDataParallel ddp(std::make_shared<Factors>(), group);
  ddp.forward(odd(group)).backward();
  const at::Tensor output = ddp.forward(odd(group)) * 2;
  if (group.rank() == 0) {
    throw_from(output);
    ignore_failure([&] { output.backward(); });
    next(ddp);
  } else {
    output.backward();
  }
}

/// Rank 0's first pass fails between the gradients of b and a. The others hear of it in this pass,
/// a sum right after meets nothing of it, and the next pass is that of all.
Numbers fail_between_gradients(const ProcessGroup& group, Way way, const DdpOptions& options) {
  const auto model = std::make_shared<Factors>();
  DistributedDataParallel ddp(model, group, options);
  bool fails = group.rank() == 0;
  model->a.register_hook([&fails](const at::Tensor&) {
    if (fails) throw std::runtime_error("a hook broke");
  });
  {
    const Pass pass(way);
    fail_on_rank_0(group, pass, ddp.forward(odd(group)));
  }
  const at::Tensor sum = at::ones({1}, at::kDouble);
  group.all_reduce(sum);
  fails = false;
  ddp.zero_grad();
  const Pass pass(way);
  pass.backward(ddp.forward(odd(group)));
  return {value(sum), pass.gradient(model->a), pass.gradient(model->b)};
}

/// Rank 0's fails behind the module, when all gradients are there.
Numbers fail_behind_gradients(const ProcessGroup& group, Way way) {
  const auto model = std::make_shared<Factors>();
  DistributedDataParallel ddp(model, group);
  {
    const Pass pass(way);
    const at::Tensor input = odd(group).requires_grad_();
    if (group.rank() == 0) throw_from(input);
    fail_on_rank_0(group, pass, ddp.forward(input));
  }
  ddp.zero_grad();
  const Pass pass(way);
  pass.backward(ddp.forward(odd(group)));
  return {pass.gradient(model->a), pass.gradient(model->b)};
}

enum class When { kAtOnce, kAfterItsSum };

/// The communication hook of rank 1 fails in the first pass, and rank 1 goes on.
void fail_in_hook(const ProcessGroup& group, Way way, When when) {
  bool fails = group.rank() == 1;
  DdpOptions options;
  options.comm_hook = [&fails, when](const ProcessGroup& over,
                                     const parallel::GradientBucket& bucket) {
    if (fails && when == When::kAtOnce) throw std::runtime_error("the hook broke");
    const bool is_broken = std::exchange(fails, false);
    return over.all_reduce_async(bucket.gradients)
        .then([is_broken, sum = bucket.gradients, size = over.size()] {
          if (is_broken) throw std::runtime_error("the hook broke");
          return sum / size;
        });
  };
  DistributedDataParallel ddp(std::make_shared<Factors>(), group, options);
  const auto pass = [&] { Pass(way).backward(ddp.forward(odd(group))); };
  if (when == When::kAfterItsSum || group.rank() == 1) ignore_failure(pass);
  pass();
}

void add_failing(TruthRows& rows) {
  rows.push_back(refused_row("rank 0's pass fails before the module, and it goes on", kOthers,
                             [](const ProcessGroup& group) {
                               fail_before_gradients(
                                   group, [&](auto& ddp) { ddp.forward(odd(group)).backward(); });
                             }));
  rows.push_back(refused_row("rank 0's pass fails before the module, and it sums as many numbers",
                             "gradients of data-parallel module", [](const ProcessGroup& group) {
                               fail_before_gradients(group, [&](auto&) {
                                 group.all_reduce(at::ones({2}, at::kDouble));
                               });
                             }));
  rows.push_back(refused_row(
      "rank 1's communication hook throws, and rank 1 goes on", "the ranks do not agree",
      [](const ProcessGroup& group) { fail_in_hook(group, Way::kPlain, When::kAtOnce); }));
  add_refused(
      rows, "rank 1's communication hook fails behind its sum, and all go on",
      "rank 1 has kept the gradients of 0 backward passes, rank 0 those of 1",
      [](const ProcessGroup& group, Way way) { fail_in_hook(group, way, When::kAfterItsSum); });
  add_numbers(rows, "rank 0's pass fails between two buckets, and it sums", times_size({1, 1, 1}),
              [](const ProcessGroup& group, Way way) {
                DdpOptions each;
                each.bucket_bytes = each.first_bucket_bytes = 1;
                return fail_between_gradients(group, way, each);
              });
  add_numbers(rows, "rank 0's pass fails within a bucket, kFound", times_size({1, 1, 1}),
              [](const ProcessGroup& group, Way way) {
                return fail_between_gradients(group, way, finding_unused());
              });
  add_numbers(rows, "rank 0's pass fails behind the module, and it goes on", times_size({1, 1}),
              &fail_behind_gradients);
}

// ---- Ranks in different passes.

void modules_in_another_order(const ProcessGroup& group, Way way) {
  DistributedDataParallel one(std::make_shared<Factors>(), group);
  DistributedDataParallel other(std::make_shared<Factors>(), group);
  auto& first = group.rank() == 0 ? one : other;
  Pass(way).backward(first.forward(odd(group)));
}

/// Outputs whose passes come in another order on rank 0.
void passes_in_another_order(DistributedDataParallel<Factors>& ddp,
                             std::vector<at::Tensor> outputs) {
  if (ddp.group().rank() == 0) std::swap(outputs[0], outputs[1]);
  outputs[0].backward();
}

/// Its first forward() waits until it is let go.
class Waiting : public torch::nn::Module {
 public:
  Waiting() { weight = register_parameter("weight", at::ones({1}, at::kDouble)); }
  at::Tensor forward(const at::Tensor& input) {
    if (!std::exchange(is_inside_, true)) {
      inside.set_value();
      go.get_future().wait_for(std::chrono::seconds(20));
    }
    return input * weight;
  }
  at::Tensor weight;
  std::promise<void> inside;
  std::promise<void> go;

 private:
  bool is_inside_ = false;
};

DdpOptions in_one_order() {
  DdpOptions options;
  options.callers = Callers::kInOneOrder;
  return options;
}

Numbers two_threads_at_once(const ProcessGroup& group) {
  const auto model = std::make_shared<Waiting>();
  DistributedDataParallel ddp(model, group, in_one_order());
  at::Tensor output;
  std::thread other([&] { output = ddp.forward(odd(group)); });
  model->inside.get_future().wait();
  const std::string otherwise =
      not_refused("two threads call forward()", [&] { ddp.forward(odd(group, 10)); });
  model->go.set_value();
  other.join();
  if (!otherwise.empty()) throw std::runtime_error(otherwise);
  // A backward pass is use too.
  std::string in_pass;
  model->weight.register_hook([&](const at::Tensor&) {
    in_pass = not_refused("while a backward pass of it runs", [&] { ddp.forward(odd(group, 10)); });
  });
  output.backward();
  if (!in_pass.empty()) throw std::runtime_error(in_pass);
  return {value(model->weight.grad())};
}

/// The gradients after turns with these factors, each by what `call` makes of a turn.
Numbers take_turns(
    const ProcessGroup& group, const DdpOptions& options, const std::vector<double>& factors,
    const std::function<void(const std::function<void(double)>& turn, double factor)>& call) {
  const auto model = std::make_shared<Factors>();
  DistributedDataParallel ddp(model, group, options);
  for (const double factor : factors) {
    call([&](double input) { ddp.forward(odd(group, input)).backward(); }, factor);
  }
  return {value(model->a.grad()), value(model->b.grad())};
}

void by_thread(const std::function<void(double)>& turn, double factor) {
  static std::mutex mutex;
  std::async(std::launch::async, [&] {
    const std::lock_guard lock(mutex);
    turn(factor);
  }).get();
}

void by_handler(const std::function<void(double)>& turn, double factor) {
  truthapp::turn() = turn;
  const Worker worker = current_worker();
  worker.peer(worker.info()).call<&truthapp::take_turn>(factor);
}

const char* const kOtherThread = "by another thread, or in another call";

void add_turns(TruthRows& rows) {
  rows.push_back(
      refused_row("two threads that take turns with a mutex, other turns on rank 0", kOtherThread,
                  [](const ProcessGroup& group) {
                    const bool others = group.rank() == 0;
                    take_turns(group, {}, {others ? 10.0 : 1.0, others ? 1.0 : 10.0}, &by_thread);
                  }));
  rows.push_back(numbers_row("another thread's turn comes first on rank 0, which goes on",
                             times_size({1, 1}), [](const ProcessGroup& group) {
                               return take_turns(group, {}, {1}, [&](const auto& turn, double own) {
                                 if (group.rank() == 0) {
                                   must_refuse(kOtherThread, [&] { by_thread(turn, 10); });
                                 }
                                 turn(own);
                               });
                             }));
  rows.push_back(
      refused_row("handlers that take turns", kOtherThread, [](const ProcessGroup& group) {
        take_turns(group, {}, {1, 10}, &by_handler);
      }));
  const std::pair<const char*, void (*)(const std::function<void(double)>&, double)> kinds[] = {
      {"threads", &by_thread}, {"handlers", &by_handler}};
  for (const auto& [name, call] : kinds) {
    rows.push_back(numbers_row(absl::StrCat(name, " that take turns, alike on all ranks"),
                               times_size({11, 11}), [call = call](const ProcessGroup& group) {
                                 return take_turns(group, in_one_order(), {1, 10}, call);
                               }));
  }
  rows.push_back(
      refused_row("calls of two threads, passes in another order on rank 0", kOthers,
                  [](const ProcessGroup& group) {
                    DistributedDataParallel ddp(std::make_shared<Factors>(), group, in_one_order());
                    at::Tensor first;
                    by_thread([&](double by) { first = ddp.forward(odd(group, by)); }, 1);
                    passes_in_another_order(ddp, {first, ddp.forward(odd(group, 10))});
                  }));
}

void add_other_passes(TruthRows& rows) {
  rows.push_back(
      refused_row("two modules in another order on rank 0", "gradients of data-parallel module",
                  [](const ProcessGroup& group) { modules_in_another_order(group, Way::kPlain); }));
  rows.push_back(refused_row(
      in(Way::kContext, "two modules in another order on rank 0"), kOthers,
      [](const ProcessGroup& group) { modules_in_another_order(group, Way::kContext); }));
  add_refused(rows, "one forward more on rank 0", "rank 0 those of call 2 of forward()",
              [](const ProcessGroup& group, Way way) {
                DistributedDataParallel ddp(std::make_shared<Factors>(), group);
                const Pass pass(way);
                if (group.rank() == 0) ddp.forward(odd(group));
                pass.backward(ddp.forward(odd(group)));
              });
  rows.push_back(refused_row("passes of two calls in another order on rank 0", kOthers,
                             [](const ProcessGroup& group) {
                               DistributedDataParallel ddp(std::make_shared<Factors>(), group);
                               const at::Tensor first = ddp.forward(odd(group));
                               passes_in_another_order(ddp, {first, ddp.forward(odd(group, 10))});
                             }));
  rows.push_back(
      numbers_row("two threads in one forward()", times_size({1}), &two_threads_at_once));
  rows.push_back(refused_row("a backward of a module that has ended", "no longer there",
                             [](const ProcessGroup& group) {
                               const auto model = std::make_shared<Factors>();
                               at::Tensor output;
                               {
                                 DistributedDataParallel ddp(model, group);
                                 output = ddp.forward(odd(group));
                               }
                               output.backward();
                             }));
  rows.push_back(refused_row("a context made after forward()", "make the context before forward()",
                             [](const ProcessGroup& group) {
                               DistributedDataParallel ddp(std::make_shared<Factors>(), group);
                               const at::Tensor output = ddp.forward(odd(group));
                               Pass(Way::kContext).backward(output);
                             }));
}

}  // namespace

void add_failures(TruthRows& rows) {
  add_failing(rows);
  add_other_passes(rows);
  add_turns(rows);
}

}  // namespace sinew::testing
