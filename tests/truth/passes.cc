#include <torch/nn.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "sinew/parallel/distributed_data_parallel.h"
#include "sinew/tests/truth/programs.h"

namespace sinew::testing {
namespace {

using parallel::DdpOptions;
using parallel::DistributedDataParallel;

const char* const kSecondPass = "whose gradients it would not reduce";
const char* const kNoGradientOfB = "no gradient for parameters of the data-parallel module: 'b'";

/// A program of two passes: in a context only the first one is reduced, and the second one says so.
void add_twice(TruthRows& rows, const std::string& program, const Right& right,
               const std::function<Numbers(const ProcessGroup& group, Way way)>& run) {
  rows.push_back(numbers_row(program, right,
                             [=](const ProcessGroup& group) { return run(group, Way::kPlain); }));
  rows.push_back(refused_row(in(Way::kContext, program), kSecondPass,
                             [=](const ProcessGroup& group) { run(group, Way::kContext); }));
}

std::vector<std::pair<std::string, DdpOptions>> kinds_of_buckets() {
  DdpOptions each;
  each.bucket_bytes = each.first_bucket_bytes = 1;
  DdpOptions views;
  views.gradients = parallel::GradientMemory::kBucketViews;
  return {{"one bucket", DdpOptions()}, {"a bucket each", each}, {"views", views}};
}

// ---- Unused parameters.

/// b is used under no_sync() only.
Numbers use_without_sync(const ProcessGroup& group, Way way, bool everywhere) {
  const auto model = std::make_shared<Factors>();
  DistributedDataParallel ddp(model, group, finding_unused());
  const Pass pass(way);
  {
    const auto scope = ddp.no_sync();
    pass.backward(ddp.forward(odd(group), true, everywhere || group.rank() == 1));
  }
  pass.backward(ddp.forward(odd(group, 10), true, false));
  return {pass.gradient(model->a), pass.gradient(model->b)};
}

/// b is used on rank 0 only; a sum of the bucket's shape right after meets none of a bucket, nobody
/// has stepped, and the next pass is none the worse for it.
Numbers leave_out(const ProcessGroup& group, Way way, const DdpOptions& options) {
  const auto model = std::make_shared<Factors>();
  DistributedDataParallel ddp(model, group, options);
  {
    const Pass pass(way);
    // In a context rank 0, whose own pass has all, hears who has failed.
    const bool hears = way == Way::kContext && group.rank() == 0;
    must_refuse(hears ? "failed on rank 1" : kNoGradientOfB, [&] {
      pass.backward(ddp.forward(odd(group), true, /*second=*/group.rank() == 0));
    });
  }
  const at::Tensor sum = at::ones({1}, at::kDouble);
  group.all_reduce(sum);
  ddp.zero_grad();
  const Pass pass(way);
  pass.backward(ddp.forward(odd(group)));
  return {value(sum), pass.gradient(model->a), pass.gradient(model->b)};
}

void add_unused(TruthRows& rows) {
  add_numbers(
      rows, "b used under no_sync() alone, kFound", times_size({11, 1}),
      [](const ProcessGroup& group, Way way) { return use_without_sync(group, way, true); });
  add_numbers(
      rows, "b used by rank 1 under no_sync() alone, kFound",
      [](int size) {
        return Numbers{11.0 * size, 3.0 / size};
      },
      [](const ProcessGroup& group, Way way) { return use_without_sync(group, way, false); });
  add_refused(rows, "b unused on all ranks", kNoGradientOfB,
              [](const ProcessGroup& group, Way way) {
                const auto model = std::make_shared<Factors>();
                DistributedDataParallel ddp(model, group);
                const Pass pass(way);
                pass.backward(ddp.forward(odd(group), true, false));
              });
  add_numbers(
      rows, "b unused on all ranks but rank 0, kFound",
      [](int size) {
        return Numbers{1.0 * size, 1.0 / size};
      },
      [](const ProcessGroup& group, Way way) {
        const auto model = std::make_shared<Factors>();
        DistributedDataParallel ddp(model, group, finding_unused());
        const Pass pass(way);
        pass.backward(ddp.forward(odd(group), true, group.rank() == 0));
        return Numbers{pass.gradient(model->a), pass.gradient(model->b)};
      });
  for (const auto& [name, options] : kinds_of_buckets()) {
    add_numbers(rows, absl::StrCat("b used on rank 0 alone, and a sum right after, ", name),
                times_size({1, 1, 1}), [options = options](const ProcessGroup& group, Way way) {
                  return leave_out(group, way, options);
                });
  }
}

// ---- Several passes, several calls.

/// In a second step, whose buckets are in the order of the first one's.
Numbers two_forwards(const ProcessGroup& group, Way way, const DdpOptions& options, bool swapped) {
  const auto model = std::make_shared<Factors>();
  DistributedDataParallel ddp(model, group, options);
  Numbers seen;
  for (int step = 0; step < 2; ++step) {
    ddp.zero_grad();
    const Pass pass(way);
    at::Tensor first = ddp.forward(odd(group));
    at::Tensor second = ddp.forward(odd(group, 10));
    if (swapped) std::swap(first, second);
    pass.backward(first);
    pass.backward(second);
    seen = {pass.gradient(model->a), pass.gradient(model->b)};
  }
  return seen;
}

/// A trunk with two heads.
class ActorAndCritic : public torch::nn::Module {
 public:
  ActorAndCritic() {
    trunk = register_parameter("trunk", at::ones({1}, at::kDouble));
    actor = register_parameter("actor", at::ones({1}, at::kDouble));
    critic = register_parameter("critic", at::ones({1}, at::kDouble));
  }
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& input) {
    const at::Tensor hidden = trunk * input;
    return {hidden * actor, hidden * critic};
  }
  Numbers gradients(const Pass& pass) const {
    return {pass.gradient(trunk), pass.gradient(actor), pass.gradient(critic)};
  }
  at::Tensor trunk;
  at::Tensor actor;
  at::Tensor critic;
};

Numbers two_heads(const ProcessGroup& group, Way way, bool together) {
  const auto model = std::make_shared<ActorAndCritic>();
  DistributedDataParallel ddp(model, group, finding_unused());
  const Pass pass(way);
  const auto [policy, worth] = ddp.forward(odd(group));
  if (together) {
    pass.backward(policy + 10 * worth);
  } else {
    pass.backward(policy, /*retain_graph=*/true);
    pass.backward(10 * worth);
  }
  return model->gradients(pass);
}

void add_several(TruthRows& rows) {
  for (const auto& [name, options] : kinds_of_buckets()) {
    for (const bool swapped : {false, true}) {
      add_twice(
          rows, absl::StrCat("two forwards, two backwards", swapped ? " swapped, " : ", ", name),
          times_size({11, 11}), [options = options, swapped](const ProcessGroup& group, Way way) {
            return two_forwards(group, way, options, swapped);
          });
    }
  }
  add_twice(rows, "one forward, two backwards", times_size({2, 2}),
            [](const ProcessGroup& group, Way way) {
              const auto model = std::make_shared<Factors>();
              DistributedDataParallel ddp(model, group);
              const Pass pass(way);
              const at::Tensor output = ddp.forward(odd(group));
              pass.backward(output, /*retain_graph=*/true);
              pass.backward(output);
              return Numbers{pass.gradient(model->a), pass.gradient(model->b)};
            });
  add_twice(rows, "losses of actor and critic one after the other", times_size({11, 1, 10}),
            [](const ProcessGroup& group, Way way) { return two_heads(group, way, false); });
  add_numbers(rows, "the sum of both losses", times_size({11, 1, 10}),
              [](const ProcessGroup& group, Way way) { return two_heads(group, way, true); });
  add_refused(rows, "the actor's loss alone, kForbidden",
              "no gradient for parameters of the data-parallel module: 'critic'",
              [](const ProcessGroup& group, Way way) {
                const auto model = std::make_shared<ActorAndCritic>();
                DistributedDataParallel ddp(model, group);
                const Pass pass(way);
                pass.backward(std::get<0>(ddp.forward(odd(group))));
              });
  add_numbers(rows, "one backward of two forwards that use a and b, kFound", times_size({1, 10}),
              [](const ProcessGroup& group, Way way) {
                const auto model = std::make_shared<Factors>();
                DistributedDataParallel ddp(model, group, finding_unused());
                const Pass pass(way);
                pass.backward(ddp.forward(odd(group), true, false) +
                              ddp.forward(odd(group, 10), false, true));
                return Numbers{pass.gradient(model->a), pass.gradient(model->b)};
              });
  add_numbers(rows, "a forward under no_sync() between forward and backward", times_size({1, 1}),
              [](const ProcessGroup& group, Way way) {
                const auto model = std::make_shared<Factors>();
                DistributedDataParallel ddp(model, group);
                const Pass pass(way);
                const at::Tensor output = ddp.forward(odd(group));
                {
                  const auto scope = ddp.no_sync();
                  ddp.forward(odd(group, 10));
                }
                pass.backward(output);
                return Numbers{pass.gradient(model->a), pass.gradient(model->b)};
              });
}

// ---- The module becomes another one.

/// A step, then what `change` does, then the next forward().
template <class Model>
std::function<void(const ProcessGroup&, Way)> after(const Model& make,
                                                    std::function<void(Factors&)> change) {
  return [make, change](const ProcessGroup& group, Way way) {
    const auto model = make();
    DistributedDataParallel ddp(model, group);
    { Pass(way).backward(ddp.forward(odd(group))); }
    change(*model);
    const Pass pass(way);
    ddp.forward(odd(group));
  };
}

void add_changes(TruthRows& rows) {
  const auto plain = [] { return std::make_shared<Factors>(); };
  const auto fixed = [] { return std::make_shared<Factors>(/*second_is_fixed=*/true); };
  add_refused(rows, "b unfrozen after the first step", "'b' requires a gradient now",
              after(fixed, [](Factors& model) { model.b.set_requires_grad(true); }));
  add_refused(rows, "b frozen after the first step", "'b' requires no gradient any more",
              after(plain, [](Factors& model) { model.b.set_requires_grad(false); }));
  add_refused(rows, "a parameter added after the first step", "'late' was added or replaced",
              after(plain, [](Factors& model) {
                model.register_parameter("late", at::ones({1}, at::kDouble));
              }));
  add_refused(rows, "a layer replaced after the first step", "'1.weight' was added or replaced",
              [](const ProcessGroup& group, Way way) {
                torch::nn::Sequential layers(torch::nn::Linear(1, 1), torch::nn::Linear(1, 1));
                DistributedDataParallel ddp(layers, group);
                { Pass(way).backward(ddp.forward(at::ones({1, 1})).sum()); }
                layers->replace_module("1", torch::nn::Linear(1, 1));
                const Pass pass(way);
                ddp.forward(at::ones({1, 1}));
              });
  add_numbers(rows, "b frozen after the first step, kFound", times_size({1}),
              [](const ProcessGroup& group, Way way) {
                const auto model = std::make_shared<Factors>();
                DistributedDataParallel ddp(model, group, finding_unused());
                model->b.set_requires_grad(false);
                const Pass pass(way);
                pass.backward(ddp.forward(odd(group)));
                return Numbers{pass.gradient(model->a)};
              });
}

// ---- forward() changes parameters.

/// Scales its weight by its input, as max_norm may.
class Restless : public torch::nn::Module {
 public:
  Restless() { weight = register_parameter("weight", at::ones({1}, at::kDouble)); }
  at::Tensor forward(const at::Tensor& input) {
    {
      const at::AutoGradMode no_grad(false);
      weight.mul_(input);
    }
    return input * weight;
  }
  at::Tensor weight;
};

void add_restless(TruthRows& rows) {
  const char* const parted = "rank 0 has 'weight' with checksum";
  add_refused(rows, "weights that forward() sets by its input", parted,
              [](const ProcessGroup& group, Way way) {
                DistributedDataParallel ddp(std::make_shared<Restless>(), group);
                Pass(way).backward(ddp.forward(odd(group)));
              });
  add_refused(rows, "weights that an evaluation sets by its input", parted,
              [](const ProcessGroup& group, Way way) {
                DistributedDataParallel ddp(std::make_shared<Restless>(), group);
                {
                  const at::AutoGradMode no_grad(false);
                  ddp.forward(odd(group));
                }
                Pass(way).backward(ddp.forward(at::full({1}, 2, at::kDouble)));
              });
  add_refused(rows, "an embedding with max_norm, other rows on each rank", parted,
              [](const ProcessGroup& group, Way way) {
                torch::nn::Embedding table(torch::nn::EmbeddingOptions(8, 2).max_norm(0.1));
                DistributedDataParallel ddp(table, group);
                Pass(way).backward(ddp.forward(at::full({1}, group.rank(), at::kLong)).sum());
              });
  add_numbers(rows, "weights that forward() sets alike on all ranks", always({2, 2}),
              [](const ProcessGroup& group, Way way) {
                const auto model = std::make_shared<Restless>();
                DistributedDataParallel ddp(model, group);
                const Pass pass(way);
                pass.backward(ddp.forward(at::full({1}, 2, at::kDouble)));
                return Numbers{pass.gradient(model->weight), value(model->weight)};
              });
}

}  // namespace

void add_passes(TruthRows& rows) {
  add_unused(rows);
  add_several(rows);
  add_changes(rows);
  add_restless(rows);
}

}  // namespace sinew::testing
