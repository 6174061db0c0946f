#include "trainer.h"

#include "ATen/ATen.h"
#include "sinew/examples/common/device.h"

namespace ddp_rpc {
namespace {

/// The trainers alone, whatever their ranks in the job are. They meet over their workers' links.
sinew::ProcessGroup group_of(const sinew::Worker& worker, const TrainerSettings& settings) {
  sinew::GroupOptions options;
  options.store = sinew::Store::over(worker);
  options.rank = static_cast<int>(settings.number);
  options.world_size = static_cast<int>(settings.trainers);
  options.name = "trainers";
  return sinew::init_process_group(options);
}

std::shared_ptr<DensePart> dense_on(const at::Device& device, std::int64_t seed) {
  auto dense = std::make_shared<DensePart>(seed);
  dense->to(device);
  return dense;
}

/// Trainers step the embedding one after another, each along the gradient of its own mean loss; the
/// dense part makes one step along the mean of all gradients. So the embedding's steps are that
/// much shorter.
sinew::optim::DistributedOptimizer optimizer_of(
    const sinew::Worker& worker, const TrainerSettings& settings,
    const sinew::RemoteModule<EmbeddingTable>& embedding, const DensePart& dense) {
  sinew::optim::SgdOptions dense_options;
  dense_options.lr = settings.lr;
  sinew::optim::SgdOptions embedding_options;
  embedding_options.lr = settings.lr / static_cast<double>(settings.trainers);
  return {worker,
          {{embedding.remote_parameters(), embedding_options},
           {sinew::parameter_rrefs(worker, dense), dense_options}}};
}

/// Who leads calls all trainers, and waits for them before it calls again.
sinew::parallel::DdpOptions led() {
  sinew::parallel::DdpOptions options;
  options.callers = sinew::parallel::Callers::kInOneOrder;
  return options;
}

double share_of_right(const at::Tensor& scores, const at::Tensor& classes) {
  return scores.argmax(1).eq(classes).to(at::kDouble).mean().item<double>();
}

}  // namespace

Trainer::Trainer(const TrainerSettings& settings,
                 const sinew::RemoteModule<EmbeddingTable>& embedding)
    : settings_(settings),
      worker_(sinew::current_worker()),
      group_(group_of(worker_, settings)),
      embedding_(embedding),
      device_(examples::device_of(settings.device)),
      dense_(dense_on(device_, settings.seed)),
      parallel_(dense_, group_, led()),
      optimizer_(optimizer_of(worker_, settings, embedding_, *dense_)) {}

double Trainer::train(std::int64_t steps) {
  double total = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    const Bags bags = Bags::of_step(settings_.batch, settings_.seed, settings_.number, step_++);
    const sinew::autograd::Context context(worker_);
    // Who cannot look words up any more tells the others, who would wait for its gradients.
    total += parallel_.step_together([&] {
      const at::Tensor embedded = embedding_.forward(bags.words, bags.offsets).to(device_);
      const at::Tensor scores = parallel_.forward(embedded);
      const at::Tensor loss = at::cross_entropy_loss(scores, bags.classes.to(device_));
      // The gradients of the dense part are those of all trainers; those of the embedding collect
      // at the server, for each trainer on its own.
      sinew::autograd::backward(context, {loss});
      optimizer_.step(context);
      return loss.item<double>();
    });
    // Nobody looks words up before all have stepped the embedding.
    group_.barrier();
  }
  return total / static_cast<double>(steps);
}

double Trainer::accuracy(std::int64_t bags, std::int64_t seed) {
  const at::NoGradGuard no_grad;
  const Bags test = Bags::make(bags, seed);
  const at::Tensor embedded = embedding_.forward(test.words, test.offsets).to(device_);
  return share_of_right(dense_->forward(embedded), test.classes.to(device_));
}

std::vector<at::Tensor> Trainer::parameters() const {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& parameter : dense_->parameters()) {
    copies.push_back(parameter.detach().to(at::kCPU, /*non_blocking=*/false, /*copy=*/true));
  }
  return copies;
}

LocalTrainer::LocalTrainer(const TrainerSettings& settings)
    : settings_(settings),
      device_(examples::device_of(settings.device)),
      embedding_(settings.seed),
      dense_(settings.seed) {
  embedding_.to(device_);
  dense_.to(device_);
}

double LocalTrainer::train(std::int64_t steps) {
  std::vector<at::Tensor> all = embedding_parameters();
  for (const at::Tensor& parameter : dense_parameters()) all.push_back(parameter);
  double total = 0;
  for (std::int64_t step = 0; step < steps; ++step, ++step_) {
    std::vector<Bags> parts;
    for (std::int64_t trainer = 0; trainer < settings_.trainers; ++trainer) {
      parts.push_back(Bags::of_step(settings_.batch, settings_.seed, trainer, step_));
    }
    const Bags bags = Bags::joined(parts).on(device_);
    const at::Tensor scores = dense_.forward(embedding_.forward(bags.words, bags.offsets));
    const at::Tensor loss = at::cross_entropy_loss(scores, bags.classes);
    loss.backward();
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : all) {
      parameter.sub_(parameter.grad(), settings_.lr);
      parameter.grad().zero_();
    }
    total += loss.item<double>();
  }
  return total / static_cast<double>(steps);
}

double LocalTrainer::accuracy(std::int64_t bags, std::int64_t seed) {
  const at::NoGradGuard no_grad;
  const Bags test = Bags::make(bags, seed).on(device_);
  return share_of_right(dense_.forward(embedding_.forward(test.words, test.offsets)), test.classes);
}

std::vector<at::Tensor> LocalTrainer::dense_parameters() const { return dense_.parameters(); }
std::vector<at::Tensor> LocalTrainer::embedding_parameters() const {
  return embedding_.parameters();
}

}  // namespace ddp_rpc
