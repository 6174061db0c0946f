#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/parallel/ddp_options.h"
#include "sinew/sinew.h"
#include "sinew/tests/truth/row.h"

namespace truthapp {

/// See add_failures().
void take_turn(double factor);

}  // namespace truthapp

SINEW_METHOD(truthapp::take_turn);

namespace sinew::testing {

// The rows of programs that train, by subject. Each process has a worker then, its trainer, and the
// job one more, which is called "server".

/// Which passes gradients are the means of, and what a module may become meanwhile.
void add_passes(TruthRows& rows);
/// Ranks whose passes fail, or are others.
void add_failures(TruthRows& rows);
/// Ranks with different numbers of inputs.
void add_uneven_inputs(TruthRows& rows);
/// Normalisation: its statistics, also over all ranks.
void add_normalisation(TruthRows& rows);
/// Clipping, scales, optimizers and their state; embeddings at the server.
void add_optimizers(TruthRows& rows);
/// Rates, limits and options that ranks have set otherwise.
void add_settings(TruthRows& rows);

/// What the server has for them.
MethodTable served();

// What programs are made of.

/// Whose backward() a program calls.
enum class Way { kPlain, kContext };
inline constexpr Way kWays[] = {Way::kPlain, Way::kContext};
/// "..., in contexts"
std::string in(Way way, const std::string& program);

/// Backward passes of one step, with LibTorch's gradients or those of a context.
class Pass {
 public:
  explicit Pass(Way way);
  void backward(const at::Tensor& loss, bool retain_graph = false) const;
  double gradient(const at::Tensor& parameter) const;
  const autograd::Context& context() const { return *context_; }

 private:
  std::optional<autograd::Context> context_;
};

/// The rows of one program, by LibTorch's backward() and in contexts.
void add_numbers(TruthRows& rows, const std::string& program, const Right& right,
                 const std::function<Numbers(const ProcessGroup& group, Way way)>& run);
void add_refused(TruthRows& rows, const std::string& program, const std::string& sentence,
                 const std::function<void(const ProcessGroup& group, Way way)>& run);

/// 1, 3, 5, ... by rank, times `factor`: the mean over all ranks is their number times that.
at::Tensor odd(const ProcessGroup& group, double factor = 1);
inline double value(const at::Tensor& tensor) { return tensor.item<double>(); }
/// The same number for any size.
Right always(Numbers numbers);
/// The numbers, each times the size of the group.
Right times_size(Numbers numbers);

parallel::DdpOptions finding_unused();

/// Two factors of 1, of which a forward() uses those that it is told to: the gradient of each is
/// the input.
class Factors : public torch::nn::Module {
 public:
  explicit Factors(bool second_is_fixed = false);
  at::Tensor forward(const at::Tensor& input, bool first = true, bool second = true);
  at::Tensor a;
  at::Tensor b;
};

}  // namespace sinew::testing
