#include "sinew/tests/autograd/random_graph.h"

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <utility>

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"

namespace testgrad {

using at::Tensor;
using Tensors = std::vector<Tensor>;

namespace {

constexpr int kVectors = 3;
constexpr int kWidth = 4;
constexpr double kLargestComparable = 1e8;

/// The leaves of one worker: vectors, a matrix, and a table for sparse gradients. The same wherever
/// they are made.
Tensors make_leaves(int rank, std::uint64_t seed) {
  std::mt19937_64 random(seed * 977 + static_cast<std::uint64_t>(rank));
  std::uniform_real_distribution<double> value(-1, 1);
  const auto make = [&](std::vector<std::int64_t> sizes) {
    Tensor leaf = at::empty(sizes, at::kDouble);
    auto* data = leaf.data_ptr<double>();
    for (std::int64_t i = 0; i < leaf.numel(); ++i) data[i] = value(random);
    return leaf.set_requires_grad(true);
  };
  Tensors leaves;
  for (int i = 0; i < kVectors; ++i) leaves.push_back(make({kWidth}));
  leaves.push_back(make({kWidth, kWidth}));
  leaves.push_back(make({6, kWidth}));
  return leaves;
}

Tensors& leaves_here() {
  static std::mutex mutex;
  static auto& all = *new std::map<std::uint64_t, Tensors>();
  const std::lock_guard<std::mutex> lock(mutex);
  return all[sinew::current_worker().info().incarnation.value];
}

/// y = x^2 * factor, with a backward of its own.
struct ScaledSquare : torch::autograd::Function<ScaledSquare> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, double factor) {
    context->save_for_backward({x});
    context->saved_data["factor"] = factor;
    return x * x * factor;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const Tensor x = context->get_saved_variables()[0];
    return {gradients[0] * 2 * x * context->saved_data["factor"].toDouble(), Tensor()};
  }
};

/// Two results, of which one may stay unused.
struct SumAndDifference : torch::autograd::Function<SumAndDifference> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext*, const Tensor& a,
                                                const Tensor& b) {
    return {a + b, a - b};
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0] + gradients[1], gradients[0] - gradients[1]};
  }
};

/// Its backward gives no gradient at all.
struct NoGradient : torch::autograd::Function<NoGradient> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) { return x * 2; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list) {
    return {Tensor()};
  }
};

enum class Road { kSync, kAsync, kRemote, kThroughAnother, kAsyncHandler, kCount };

/// Where a program runs.
class Place {
 public:
  virtual ~Place() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const Tensors& leaves() = 0;
  virtual Tensors call(Road road, int to, int other, std::uint64_t seed, int depth,
                       const Tensors& inputs) = 0;
  /// Two calls at once.
  virtual std::pair<Tensors, Tensors> call_two(int first, int second, std::uint64_t seed, int depth,
                                               const Tensors& inputs) = 0;
};

/// LibTorch's C++ hooks cannot take undefined gradients: a program has one or the other.
enum class Special { kHooks, kNoGradients };

Tensor operation(std::mt19937_64& random, Place& place, const Tensors& values, Special special) {
  const auto pick = [&]() -> const Tensor& { return values[random() % values.size()]; };
  const Tensor& a = pick();
  const Tensor& b = pick();
  switch (random() % 14) {
    case 0:
      return a + b;
    case 1:
      return at::tanh(a * b);
    case 2:
      return at::sin(a);
    case 3:
      return at::matmul(place.leaves()[kVectors], a);
    case 4: {
      const Tensor rows = at::tensor(std::vector<std::int64_t>{
          static_cast<std::int64_t>(random() % 6), static_cast<std::int64_t>(random() % 6), 2});
      return at::embedding(place.leaves()[kVectors + 1], rows, -1, false, true).sum(0) + a;
    }
    case 5: {  // a view, changed in place
      Tensor copy = a * 1;
      copy.slice(0, 0, 2).mul_(3);
      copy.slice(0, 1, 3).add_(b.slice(0, 0, 2));
      return copy;
    }
    case 6: {
      Tensor copy = at::clone(a);
      copy.add_(b, 2);
      return copy;
    }
    case 7:
      return ScaledSquare::apply(a, 0.5);
    case 8: {
      const Tensors both = SumAndDifference::apply(a, b);
      return both[random() % 2];
    }
    case 9:
      return a.detach() * b;
    case 10: {
      Tensor hooked = a * 1.5;
      if (special == Special::kHooks && hooked.requires_grad()) {
        hooked.register_hook([](const Tensor& gradient) { return gradient * 0.5; });
      }
      return hooked;
    }
    case 11:
      return special == Special::kNoGradients ? NoGradient::apply(a) : a * 2;
    case 12:
      return at::linear(a, place.leaves()[kVectors], b);
    default:
      return place.leaves()[random() % kVectors] * a;
  }
}

Tensors run(Place& place, std::uint64_t seed, int depth, const Tensors& inputs) {
  std::mt19937_64 random(seed);
  Tensors values = inputs;
  values.push_back(place.leaves()[random() % kVectors]);
  values.push_back(at::tanh(place.leaves()[random() % kVectors] + inputs[0]));
  const auto size = static_cast<std::uint64_t>(place.size());
  const auto append = [&](const Tensors& more) {
    values.insert(values.end(), more.begin(), more.end());
  };
  const auto some = [&] {
    Tensors chosen;
    const std::size_t count = 1 + random() % 3;
    // The same one may be sent several times.
    for (std::size_t i = 0; i < count; ++i) chosen.push_back(values[random() % values.size()]);
    return chosen;
  };
  const std::size_t steps = 4 + random() % 4;
  for (std::size_t step = 0; step < steps; ++step) {
    const std::uint64_t kind = random() % 10;
    // The lowest bit goes for the whole program.
    const std::uint64_t next = (random() & ~std::uint64_t{1}) | (seed & 1);
    const int to = static_cast<int>(random() % size);
    const int other = static_cast<int>(random() % size);
    const auto road = static_cast<Road>(random() % static_cast<std::uint64_t>(Road::kCount));
    const Tensors arguments = some();
    if (depth == 0 || kind < 6) {
      values.push_back(operation(random, place, values,
                                 (seed & 1) != 0 ? Special::kHooks : Special::kNoGradients));
    } else if (kind < 8) {
      append(place.call(road, to, other, next, depth - 1, arguments));
    } else if (kind == 8) {
      auto [first, second] = place.call_two(to, other, next, depth - 1, arguments);
      append(first);
      append(second);
    } else {
      place.call(road, to, other, next, depth - 1, arguments);  // Nobody uses the result.
    }
  }
  Tensors results;
  const std::size_t count = 1 + random() % 3;
  for (std::size_t i = 0; i < count; ++i) {
    // A mixture, so that much of what was computed matters.
    results.push_back(values[values.size() - 1 - i % values.size()] +
                      values[random() % values.size()] * values[random() % values.size()]);
  }
  return results;
}

// ---- Without workers.

class LocalPlace final : public Place {
 public:
  LocalPlace(int rank, std::vector<Tensors>& leaves) : rank_(rank), leaves_(leaves) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(leaves_.size()); }
  const Tensors& leaves() override { return leaves_.at(static_cast<std::size_t>(rank_)); }
  Tensors call(Road road, int to, int other, std::uint64_t seed, int depth,
               const Tensors& inputs) override {
    LocalPlace place(to, leaves_);
    const Tensors results = copies(run(place, seed, depth, copies(inputs)));
    if (road == Road::kThroughAnother) {
      LocalPlace third(other, leaves_);
      return copies(run(third, seed + 2, 0, results));
    }
    if (road == Road::kAsyncHandler) {
      LocalPlace third(other, leaves_);
      Tensors more = copies(run(third, seed + 2, 0, copies(results)));
      for (Tensor& one : more) one = one * 2;
      return copies(more);
    }
    return results;
  }
  std::pair<Tensors, Tensors> call_two(int first, int second, std::uint64_t seed, int depth,
                                       const Tensors& inputs) override {
    Tensors one = call(Road::kSync, first, 0, seed, depth, inputs);
    return {std::move(one), call(Road::kSync, second, 0, seed + 2, depth, inputs)};
  }

 private:
  static Tensors copies(const Tensors& tensors) {
    Tensors result;
    for (const Tensor& tensor : tensors) result.push_back(at::clone(tensor));
    return result;
  }
  const int rank_;
  std::vector<Tensors>& leaves_;
};

}  // namespace

// ---- Methods.

void reset_leaves(std::uint64_t seed) {
  leaves_here() = make_leaves(sinew::current_worker().rank(), seed);
}
Tensors run_program(std::uint64_t seed, int depth, Tensors inputs);
Tensors run_on(const sinew::RRef<Tensors>& inputs, std::uint64_t seed);
sinew::Future<Tensors> run_later(std::uint64_t seed, int depth, Tensors inputs, int other);
/// Of each leaf; undefined ones stand for none.
Tensors gradients_here(const sinew::autograd::ContextId& context) {
  Tensors result;
  for (const Tensor& leaf : leaves_here()) {
    result.push_back(sinew::autograd::gradient_of(sinew::current_worker(), context, leaf));
  }
  return result;
}
bool has_context(const sinew::autograd::ContextId& context) {
  try {
    sinew::autograd::gradients(sinew::current_worker(), context);
    return true;
  } catch (const sinew::RpcError&) {
    return false;
  }
}

}  // namespace testgrad
SINEW_METHOD(testgrad::reset_leaves, testgrad::run_program, testgrad::run_on, testgrad::run_later,
             testgrad::gradients_here, testgrad::has_context);

namespace testgrad {
namespace {

class WorkerPlace final : public Place {
 public:
  WorkerPlace(sinew::Worker worker, const Tensors& leaves)
      : worker_(std::move(worker)),
        size_(static_cast<int>(worker_.workers().size())),
        leaves_(leaves) {}
  int rank() const override { return worker_.rank(); }
  int size() const override { return size_; }
  const Tensors& leaves() override { return leaves_; }
  Tensors call(Road road, int to, int other, std::uint64_t seed, int depth,
               const Tensors& inputs) override {
    const sinew::Peer peer = worker_.peer(to);
    switch (road) {
      case Road::kAsync:
        return peer.async<&run_program>(seed, depth, inputs).take();
      case Road::kRemote:
        return peer.remote<&run_program>(seed, depth, inputs).to_here();
      case Road::kThroughAnother:
        return worker_.peer(other).call<&run_on>(peer.remote<&run_program>(seed, depth, inputs),
                                                 seed + 2);
      case Road::kAsyncHandler:
        return peer.call<&run_later>(seed, depth, inputs, other);
      default:
        return peer.call<&run_program>(seed, depth, inputs);
    }
  }
  std::pair<Tensors, Tensors> call_two(int first, int second, std::uint64_t seed, int depth,
                                       const Tensors& inputs) override {
    auto one = worker_.peer(first).async<&run_program>(seed, depth, inputs);
    auto two = worker_.peer(second).async<&run_program>(seed + 2, depth, inputs);
    Tensors results = one.take();
    return {std::move(results), two.take()};
  }

 private:
  const sinew::Worker worker_;
  const int size_;
  const Tensors leaves_;
};

}  // namespace

Tensors run_program(std::uint64_t seed, int depth, Tensors inputs) {
  WorkerPlace place(sinew::current_worker(), leaves_here());
  return run(place, seed, depth, inputs);
}

Tensors run_on(const sinew::RRef<Tensors>& inputs, std::uint64_t seed) {
  Tensors values = inputs.to_here();
  // At the owner they are the values themselves, for others copies.
  if (inputs.is_owner()) {
    for (Tensor& value : values) value = at::clone(value);
  }
  return run_program(seed, 0, std::move(values));
}

sinew::Future<Tensors> run_later(std::uint64_t seed, int depth, Tensors inputs, int other) {
  const Tensors first = run_program(seed, depth, std::move(inputs));
  return sinew::current_worker()
      .peer(other)
      .async<&run_program>(seed + 2, 0, first)
      .then([](const Tensors& results) {
        Tensors doubled;
        for (const Tensor& one : results) doubled.push_back(one * 2);
        return doubled;
      });
}

void add_methods(sinew::MethodTable& methods) {
  methods.add<&reset_leaves>()
      .add<&run_program>()
      .add<&run_on>()
      .add<&run_later>()
      .add<&gradients_here>()
      .add<&has_context>();
}

// ---- The comparison.

namespace {

/// Scalars that are to be differentiated.
Tensors roots_of(std::mt19937_64& random, const Tensors& values) {
  Tensors roots;
  for (const Tensor& value : values) {
    if (value.requires_grad()) roots.push_back((value * value).sum());
    if (roots.size() == 1 + random() % 3) break;
  }
  return roots;
}

/// A graph that multiplies its results a few times over leaves the range in which two ways of
/// adding up agree: such a graph is compared in what it reaches, not in its numbers.
bool is_tame(const std::vector<Tensors>& leaves) {
  for (const Tensors& of_worker : leaves) {
    for (const Tensor& leaf : of_worker) {
      const Tensor gradient = leaf.grad();
      if (!gradient.defined()) continue;
      const Tensor dense = gradient.is_sparse() ? gradient.to_dense() : gradient;
      if (!(dense.abs().max().item<double>() < kLargestComparable)) return false;
    }
  }
  return true;
}

std::string compare(int rank, std::size_t number, const Tensor& expected, const Tensor& actual,
                    bool tame) {
  if (expected.defined() != actual.defined()) {
    return absl::StrCat("worker ", rank, ", leaf ", number, ": ",
                        expected.defined() ? "no gradient" : "a gradient too many", "; ");
  }
  if (!expected.defined()) return "";
  if (expected.is_sparse() != actual.is_sparse()) {
    return absl::StrCat("worker ", rank, ", leaf ", number, ": not sparse alike; ");
  }
  const Tensor a = expected.is_sparse() ? expected.to_dense() : expected;
  const Tensor b = actual.is_sparse() ? actual.to_dense() : actual;
  if (!tame) return "";
  if (at::allclose(a, b, 1e-7, 1e-9)) return "";
  return absl::StrCat("worker ", rank, ", leaf ", number, ": differs by ",
                      (a - b).abs().max().item<double>(), "; ");
}

constexpr int kDepth = 3;

Tensors make_inputs() {
  Tensors made;
  made.push_back(at::full({kWidth}, 0.5, at::kDouble).set_requires_grad(true));
  made.push_back(at::full({kWidth}, -0.25, at::kDouble));
  return made;
}

std::vector<Tensors> make_leaves_of_all(const GraphOptions& options) {
  std::vector<Tensors> leaves;
  for (int rank = 0; rank < options.workers; ++rank) {
    leaves.push_back(make_leaves(rank, options.seed));
  }
  return leaves;
}

Tensors run_locally(const GraphOptions& options, std::vector<Tensors>& leaves,
                    const Tensors& inputs) {
  LocalPlace local(0, leaves);
  std::mt19937_64 random(options.seed);
  return roots_of(random, run(local, options.seed, kDepth, inputs));
}

/// Gradients of the program's inputs, and of the leaves of each worker.
struct Gradients {
  Tensor input;
  std::vector<Tensors> leaves;
  std::int64_t sends = 0;
};

Gradients run_over_workers(const sinew::Worker& self, const GraphOptions& options) {
  for (int rank = 0; rank < options.workers; ++rank) {
    self.peer(rank).call<&reset_leaves>(options.seed);
  }
  const Tensors inputs = make_inputs();
  const Tensors own_leaves = make_leaves(0, options.seed);
  Gradients result;
  const sinew::autograd::Context context(self);
  WorkerPlace place(self, own_leaves);
  std::mt19937_64 random(options.seed);
  const Tensors roots = roots_of(random, run(place, options.seed, kDepth, inputs));
  for (int pass = 0; pass < options.passes; ++pass) {
    sinew::autograd::BackwardOptions backward;
    backward.retain_graph = pass + 1 < options.passes;
    sinew::autograd::backward(context, roots, backward);
  }
  result.sends = self.counters()["autograd.sends"];
  result.input = sinew::autograd::gradient_of(context, inputs[0]);
  for (int rank = 0; rank < options.workers; ++rank) {
    const bool known = self.peer(rank).call<&has_context>(context.id());
    Tensors found(own_leaves.size());
    if (known) found = self.peer(rank).call<&gradients_here>(context.id());
    for (std::size_t i = 0; rank == 0 && i < found.size(); ++i) {
      // The program's own thread has leaves of its own beside those of its handlers.
      const Tensor mine = sinew::autograd::gradient_of(context, own_leaves[i]);
      if (mine.defined()) found[i] = found[i].defined() ? found[i] + mine : mine;
    }
    result.leaves.push_back(std::move(found));
  }
  return result;
}

/// Whether the bits are the same; for NaN too.
bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  const auto bytes = [](const Tensor& tensor) {
    const Tensor dense = (tensor.is_sparse() ? tensor.to_dense() : tensor).contiguous();
    return std::string(static_cast<const char*>(dense.data_ptr()), dense.nbytes());
  };
  return bytes(a) == bytes(b);
}

}  // namespace

GraphResult check_random_graph(const sinew::Worker& self, const GraphOptions& options) {
  std::vector<Tensors> leaves = make_leaves_of_all(options);
  const Tensors local_inputs = make_inputs();
  const Tensors local_roots = run_locally(options, leaves, local_inputs);
  if (local_roots.empty()) return {};
  for (int pass = 0; pass < options.passes; ++pass) {
    torch::autograd::backward(local_roots, {}, pass + 1 < options.passes);
  }
  const Gradients found = run_over_workers(self, options);
  GraphResult result;
  result.sends = found.sends;
  result.tame = is_tame(leaves);
  result.differences += compare(0, 100, local_inputs[0].grad(), found.input, result.tame);
  for (int rank = 0; rank < options.workers; ++rank) {
    const auto of_rank = static_cast<std::size_t>(rank);
    for (std::size_t i = 0; i < leaves[of_rank].size(); ++i) {
      const Tensor& expected = leaves[of_rank][i].grad();
      result.gradients += expected.defined() ? 1 : 0;
      result.differences += compare(rank, i, expected, found.leaves[of_rank][i], result.tame);
    }
  }
  return result;
}

std::string differences_of_runs(const sinew::Worker& self, const GraphOptions& options, int runs) {
  std::vector<Tensors> leaves = make_leaves_of_all(options);
  if (run_locally(options, leaves, make_inputs()).empty()) return "";
  std::string differences;
  const Gradients first = run_over_workers(self, options);
  for (int run = 1; run < runs; ++run) {
    const Gradients found = run_over_workers(self, options);
    if (!same_bits(first.input, found.input))
      absl::StrAppend(&differences, "run ", run, ": input; ");
    for (std::size_t rank = 0; rank < found.leaves.size(); ++rank) {
      for (std::size_t i = 0; i < found.leaves[rank].size(); ++i) {
        if (same_bits(first.leaves[rank][i], found.leaves[rank][i])) continue;
        absl::StrAppend(&differences, "run ", run, ": worker ", rank, ", leaf ", i, "; ");
      }
    }
  }
  return differences;
}

}  // namespace testgrad
