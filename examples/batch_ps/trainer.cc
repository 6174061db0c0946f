#include "trainer.h"

#include "ATen/ATen.h"

namespace batch_ps {

Trainer::Trainer(std::int64_t number, std::int64_t batch, std::int64_t seed,
                 const std::string& history)
    : name_("worker" + std::to_string(number)),
      batch_(batch),
      next_seed_((seed * 1000 + number) * 1'000'000),
      history_(history, name_, kModelName) {}

double Trainer::train(const sinew::RRef<BatchServer>& server, std::int64_t steps) {
  Parameters model = server.call<&BatchServer::parameters>();
  double total = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    const examples::Spirals data = examples::Spirals::make(batch_, next_seed_++);
    for (at::Tensor& parameter : model) parameter.requires_grad_();
    const at::Tensor loss = at::cross_entropy_loss(scores(model, data.points), data.arms);
    loss.backward();
    Gradients gradients;
    gradients.id = name_ + "." + std::to_string(++sent_);
    for (const at::Tensor& parameter : model) gradients.values.push_back(parameter.grad());
    history_.add_increment(gradients.id, examples::HistoryFile::Result::kUnknown);
    // Comes back when the others have sent theirs, too.
    model = server.call<&BatchServer::update>(gradients);
    history_.add_increment(gradients.id, examples::HistoryFile::Result::kOk);
    total += loss.item<double>();
  }
  return total / static_cast<double>(steps);
}

}  // namespace batch_ps
