#include "learner/sac.h"

#include "ATen/ATen.h"
#include "sinew/examples/common/archives.h"
#include "torch/utils.h"

namespace actor_learner {
namespace {

/// The parameters of `module` as they are, without gradients, as long as this lives.
class Frozen {
 public:
  explicit Frozen(const torch::nn::Module& module) : parameters_(module.parameters()) {
    set(false);
  }
  ~Frozen() { set(true); }
  Frozen(const Frozen&) = delete;
  Frozen& operator=(const Frozen&) = delete;

 private:
  void set(bool requires_grad) {
    for (at::Tensor& parameter : parameters_) parameter.set_requires_grad(requires_grad);
  }

  std::vector<at::Tensor> parameters_;
};

torch::optim::AdamOptions adam(const SacSettings& settings) {
  return torch::optim::AdamOptions(settings.learning_rate);
}

/// One step down the gradient of `loss`; its value.
double step(torch::optim::Optimizer& optimizer, const at::Tensor& loss) {
  optimizer.zero_grad();
  loss.backward();
  optimizer.step();
  return loss.item<double>();
}

std::uint64_t seeded(std::uint64_t seed) {
  torch::manual_seed(seed);
  return seed;
}

}  // namespace

Sac::Sac(const SacSettings& settings, std::uint64_t seed)
    : settings_(settings),
      random_(make_random(seeded(seed))),
      policy_(std::make_shared<Policy>()),
      critics_(std::make_shared<Critics>()),
      targets_(std::make_shared<Critics>()),
      log_temperature_(at::zeros({}).set_requires_grad(true)),
      policy_optimizer_(policy_->parameters(), adam(settings)),
      critics_optimizer_(critics_->parameters(), adam(settings)),
      temperature_optimizer_(std::vector<at::Tensor>{log_temperature_}, adam(settings)) {
  follow(*targets_, *critics_, 1);
}

double Sac::temperature() const { return log_temperature_.exp().item<double>(); }

Sac::Losses Sac::update(const Transitions& batch) {
  Losses losses;
  losses.critics = update_critics(batch);
  const Policy::Sample sample = policy_->sample(batch.observations, random_);
  losses.policy = update_policy(batch, sample);
  losses.temperature = update_temperature(sample.log_probabilities.detach());
  follow(*targets_, *critics_, settings_.tau);
  return losses;
}

at::Tensor Sac::wanted_values(const Transitions& batch) {
  const at::NoGradGuard no_grad;
  const Policy::Sample next = policy_->sample(batch.next_observations, random_);
  const at::Tensor values = targets_->lower(batch.next_observations, next.actions) -
                            temperature() * next.log_probabilities;
  return settings_.reward_scale * batch.rewards + settings_.gamma * (1 - batch.terminals) * values;
}

double Sac::update_critics(const Transitions& batch) {
  const at::Tensor wanted = wanted_values(batch);
  const auto [first, second] = critics_->forward(batch.observations, batch.actions);
  return step(critics_optimizer_, at::mse_loss(first, wanted) + at::mse_loss(second, wanted));
}

double Sac::update_policy(const Transitions& batch, const Policy::Sample& sample) {
  // The gradient goes through the critics to the actions, and is not for the critics.
  const Frozen frozen(*critics_);
  const at::Tensor values = critics_->lower(batch.observations, sample.actions);
  return step(policy_optimizer_, (temperature() * sample.log_probabilities - values).mean());
}

double Sac::update_temperature(const at::Tensor& log_probabilities) {
  return step(temperature_optimizer_,
              -log_temperature_.exp() * (log_probabilities + settings_.target_entropy).mean());
}

void Sac::save(torch::serialize::OutputArchive& archive) const {
  examples::save_part(archive, "policy", *policy_);
  examples::save_part(archive, "critics", *critics_);
  examples::save_part(archive, "targets", *targets_);
  examples::save_part(archive, "policy_optimizer", policy_optimizer_);
  examples::save_part(archive, "critics_optimizer", critics_optimizer_);
  examples::save_part(archive, "temperature_optimizer", temperature_optimizer_);
  archive.write("log_temperature", log_temperature_.detach(), /*is_buffer=*/true);
  archive.write("random", random_.get_state(), /*is_buffer=*/true);
}

void Sac::load(torch::serialize::InputArchive& archive) {
  examples::load_part(archive, "policy", *policy_);
  examples::load_part(archive, "critics", *critics_);
  examples::load_part(archive, "targets", *targets_);
  for (const auto& [name, optimizer] :
       {std::pair<const char*, torch::optim::Optimizer*>("policy_optimizer", &policy_optimizer_),
        {"critics_optimizer", &critics_optimizer_},
        {"temperature_optimizer", &temperature_optimizer_}}) {
    examples::load_part(archive, name, *optimizer);
    // The archive has that of the one who wrote it.
    for (auto& group : optimizer->param_groups()) group.options().set_lr(settings_.learning_rate);
  }
  const at::NoGradGuard no_grad;
  log_temperature_.copy_(examples::read_tensor(archive, "log_temperature"));
  random_.set_state(examples::read_tensor(archive, "random"));
}

}  // namespace actor_learner
