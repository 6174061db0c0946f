#include "decision.h"

#include "policy.h"

namespace rl {

Decision decide(PolicyImpl& policy, const at::Tensor& states) {
  const torch::NoGradGuard no_grad;
  Decision decision{states, policy.draw_dropout(states.size(0)), {}};
  decision.actions = policy.forward(states, decision.dropout).multinomial(1).squeeze(1);
  return decision;
}

at::Tensor probabilities_of(PolicyImpl& policy, const std::vector<Decision>& decisions) {
  std::vector<at::Tensor> states;
  std::vector<at::Tensor> dropout;
  std::vector<at::Tensor> actions;
  for (const Decision& decision : decisions) {
    states.push_back(decision.states);
    dropout.push_back(decision.dropout);
    actions.push_back(decision.actions);
  }
  return policy.forward(torch::cat(states), torch::cat(dropout))
      .gather(1, torch::cat(actions).unsqueeze(1))
      .squeeze(1);
}

}  // namespace rl
