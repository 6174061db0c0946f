#include "trainer.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "ATen/ATen.h"
#include "corpus.h"

namespace ps_rnn {

Trainer::Trainer(const TrainerSettings& settings, const ServerModel& servers,
                 const sinew::optim::DistributedOptimizer& server_optimizer)
    : settings_(settings),
      worker_(sinew::current_worker()),
      servers_(servers),
      server_optimizer_(server_optimizer),
      lstm_(make_lstm(settings.model)),
      lstm_optimizer_(worker_, sinew::parameter_rrefs(worker_, lstm_), settings.optimizer) {
  const Corpus corpus = load_corpus(settings.data, {settings.ntoken, settings.limit});
  train_ = in_columns(share_of(corpus.train, settings.number, settings.trainers));
  valid_ = in_columns(share_of(corpus.valid, settings.number, settings.trainers));
  for (const at::Tensor& part : {train_, valid_}) {
    if (part.size(0) < 2) {
      throw std::runtime_error(settings.data +
                               " is too short: " + std::to_string(corpus.train.size()) +
                               " words and " + std::to_string(corpus.valid.size()) +
                               " to validate with, of which a trainer needs two for " +
                               "each of its " + std::to_string(settings.batch) +
                               " pieces; take a longer text, a smaller --batch or fewer trainers");
    }
  }
  // A word is there to predict the next one, so the last one is no input.
  steps_ = (train_.size(0) - 1 + settings.bptt - 1) / settings.bptt;
  if (settings.max_steps > 0) steps_ = std::min(steps_, settings.max_steps);
}

at::Tensor Trainer::in_columns(const std::vector<std::int64_t>& text) const {
  const auto rows = static_cast<std::int64_t>(text.size()) / settings_.batch;
  return at::tensor(at::ArrayRef<std::int64_t>(text), at::kLong)
      .slice(0, 0, rows * settings_.batch)
      .view({settings_.batch, rows})
      .t()
      .contiguous();
}

void Trainer::begin_epoch(std::int64_t epoch, double learning_rate) {
  next_step_ = 0;
  hidden_ = zero_hidden(settings_.model, settings_.batch);
  lstm_optimizer_.set_learning_rate(learning_rate);
  // For the LSTM's dropout, so that an epoch is the same after a restart.
  at::manual_seed(
      static_cast<std::uint64_t>((settings_.model.seed * 1009 + epoch) * 1009 + settings_.number));
}

Loss Trainer::train(std::int64_t steps) {
  Loss total;
  lstm_->train();
  for (const std::int64_t end = std::min(steps_, next_step_ + steps); next_step_ < end;
       ++next_step_) {
    const std::int64_t first = next_step_ * settings_.bptt;
    const std::int64_t rows = std::min(settings_.bptt, train_.size(0) - 1 - first);
    const at::Tensor words = train_.narrow(0, first, rows);
    const at::Tensor targets = train_.narrow(0, first + 1, rows);

    const sinew::autograd::Context context(worker_);
    hidden_ = detached(hidden_);  // what came before this step gets no gradient
    const at::Tensor loss = loss_of(words, targets, hidden_);
    sinew::autograd::backward(context, {loss});
    const auto server_step = server_optimizer_.step_async(context.id());
    lstm_optimizer_.step(context);
    server_step.wait();
    total += {loss.item<double>() * static_cast<double>(words.numel()), words.numel()};
  }
  hidden_ = detached(hidden_);
  return total;
}

Loss Trainer::evaluate() {
  const at::NoGradGuard no_grad;
  lstm_->eval();
  Loss total;
  Hidden hidden = zero_hidden(settings_.model, settings_.batch);
  for (std::int64_t first = 0; first + 1 < valid_.size(0); first += settings_.bptt) {
    const std::int64_t rows = std::min(settings_.bptt, valid_.size(0) - 1 - first);
    const at::Tensor words = valid_.narrow(0, first, rows);
    const at::Tensor loss = loss_of(words, valid_.narrow(0, first + 1, rows), hidden);
    total += {loss.item<double>() * static_cast<double>(words.numel()), words.numel()};
  }
  return total;
}

at::Tensor Trainer::loss_of(const at::Tensor& words, const at::Tensor& targets, Hidden& hidden) {
  const at::Tensor input = servers_.embed(words);
  at::Tensor output;
  std::tie(output, hidden) = lstm_->forward(input, hidden);
  if (settings_.scores_to_trainer) return cross_entropy(servers_.decoder.forward(output), targets);
  return servers_.decoder.module_rref().call<&Decoder::loss>(output, targets);
}

std::vector<at::Tensor> Trainer::parameters() const {
  std::vector<at::Tensor> values;
  for (const at::Tensor& parameter : lstm_->parameters())
    values.push_back(parameter.detach().clone());
  return values;
}

void Trainer::set_parameters(const std::vector<at::Tensor>& values) {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> parameters = lstm_->parameters();
  if (values.size() != parameters.size()) {
    throw std::invalid_argument("the LSTM has " + std::to_string(parameters.size()) +
                                " parameters, and not " + std::to_string(values.size()));
  }
  for (std::size_t i = 0; i < values.size(); ++i) parameters[i].copy_(values[i]);
}

void Trainer::save(const std::string& folder, const std::string& note) {
  lstm_optimizer_.save(folder, note);
}

std::string Trainer::load(const std::string& folder) { return lstm_optimizer_.load(folder).note; }

void add_trainer_methods(sinew::MethodTable& methods) { methods.serve<Trainer>(); }

}  // namespace ps_rnn
