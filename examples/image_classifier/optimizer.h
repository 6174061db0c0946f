#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/groups/process_group.h"

namespace image_classifier {

struct SgdSettings {
  double lr = 0.1;
  /// Nesterov's; 0: none.
  double momentum = 0.9;
  double weight_decay = 0;
};

/// SGD whose state each rank has, or which is spread over the ranks. Both make the same steps.
class Sgd {
 public:
  virtual ~Sgd() = default;

  virtual void zero_grad() = 0;
  /// All ranks call it.
  virtual void step() = 0;
  virtual void set_rate(double lr) = 0;
  /// The state, at rank 0; all ranks call it.
  virtual std::string save() = 0;
  /// Takes a state that save() has returned. Throws for one that is damaged.
  virtual void load(const std::string& state) = 0;
  /// What this rank keeps.
  virtual std::size_t state_bytes() const = 0;
};

/// `spread_over`: the group whose ranks share the state.
std::unique_ptr<Sgd> make_sgd(std::vector<at::Tensor> parameters, const SgdSettings& settings,
                              const std::optional<sinew::ProcessGroup>& spread_over);

}  // namespace image_classifier
