#include "trainer.h"

#include "ATen/ATen.h"

namespace batch_ps {

Trainer::Trainer(std::int64_t number, std::int64_t batch, std::int64_t seed)
    : batch_(batch), next_seed_((seed * 1000 + number) * 1'000'000) {}

double Trainer::train(const sinew::RRef<BatchServer>& server, std::int64_t steps) {
  Parameters model = server.call<&BatchServer::parameters>();
  double total = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    const examples::Spirals data = examples::Spirals::make(batch_, next_seed_++);
    for (at::Tensor& parameter : model) parameter.requires_grad_();
    const at::Tensor loss = at::cross_entropy_loss(scores(model, data.points), data.arms);
    loss.backward();
    Parameters gradients;
    for (const at::Tensor& parameter : model) gradients.push_back(parameter.grad());
    // Comes back when the others have sent theirs, too.
    model = server.call<&BatchServer::update>(gradients);
    total += loss.item<double>();
  }
  return total / static_cast<double>(steps);
}

}  // namespace batch_ps
