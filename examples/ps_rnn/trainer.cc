#include "trainer.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "ATen/ATen.h"
#include "training.h"

namespace ps_rnn {

using sinew::optim::DistributedOptimizer;

examples::HistoryFile::Versions versions_by_server(const std::vector<std::uint64_t>& versions) {
  examples::HistoryFile::Versions all;
  for (std::size_t i = 0; i < versions.size(); ++i) {
    all["server" + std::to_string(i)] = versions[i];
  }
  return all;
}

Trainer::Trainer(const TrainerSettings& settings, const ServerModel& servers,
                 const DistributedOptimizer& server_optimizer)
    : settings_(settings),
      worker_(sinew::current_worker()),
      servers_(servers),
      server_optimizer_(server_optimizer),
      lstm_(make_lstm(settings.model)),
      lstm_optimizer_(worker_, sinew::parameter_rrefs(worker_, lstm_),
                      optimizer_options(settings.optimizer, settings.learning_rate)),
      corpus_(load_corpus(settings.data, {settings.ntoken, settings.limit})),
      history_(settings.history, worker_.name(), kServersInHistory),
      hidden_(zero_hidden(settings.model, settings.batch)),
      kept_hidden_(zero_hidden(settings.model, settings.batch)) {
  lstm_optimizer_.keep({sinew::make_rref(worker_, std::get<0>(kept_hidden_)),
                        sinew::make_rref(worker_, std::get<1>(kept_hidden_))});
  for (const auto* text : {&corpus_.train, &corpus_.valid}) {
    if (in_columns(*text, settings.number).size(0) < 2) {
      throw std::runtime_error(settings.data +
                               " is too short: " + std::to_string(corpus_.train.size()) +
                               " words and " + std::to_string(corpus_.valid.size()) +
                               " to validate with, of which a trainer needs two for " +
                               "each of its " + std::to_string(settings.batch) +
                               " pieces; take a longer text, a smaller --batch or fewer trainers");
    }
  }
  // A word is there to predict the next one, so the last one is no input.
  steps_ =
      (in_columns(corpus_.train, settings.number).size(0) - 1 + settings.bptt - 1) / settings.bptt;
  if (settings.max_steps > 0) steps_ = std::min(steps_, settings.max_steps);
}

at::Tensor Trainer::in_columns(const std::vector<std::int64_t>& text, std::int64_t share) const {
  const std::vector<std::int64_t> part = share_of(text, share, settings_.trainers);
  const auto rows = static_cast<std::int64_t>(part.size()) / settings_.batch;
  return at::tensor(at::ArrayRef<std::int64_t>(part), at::kLong)
      .slice(0, 0, rows * settings_.batch)
      .view({settings_.batch, rows})
      .t()
      .contiguous();
}

void Trainer::begin_epoch(std::int64_t epoch, double learning_rate, const Plan& plan) {
  epoch_ = epoch;
  rest_ = plan;
  // No round has begun: go_on() has nothing to make.
  done_ = end_ = 0;
  hidden_ = zero_hidden(settings_.model, settings_.batch);
  lstm_optimizer_.set_learning_rate(learning_rate);
}

Loss Trainer::train(std::int64_t steps) {
  // For the LSTM's dropout, so that a round is the same after a restart.
  at::manual_seed(static_cast<std::uint64_t>(
      ((settings_.model.seed * 1009 + epoch_) * 100'003 + done_) * 1009 + settings_.number));
  total_ = {};
  end_ = done_ + steps;
  failed_.reset();
  lstm_is_ahead_ = false;
  lstm_->train();
  return make_steps();
}

Loss Trainer::go_on(const ServerModel& servers, const DistributedOptimizer& server_optimizer) {
  servers_ = servers;
  server_optimizer_ = server_optimizer;
  return make_steps();
}

Loss Trainer::make_steps() {
  for (; done_ < end_ && !rest_.empty(); ++done_) {
    if (rest_.front().share != share_) {
      share_ = rest_.front().share;
      columns_ = in_columns(corpus_.train, share_);
    }
    const Piece made = rest_.front();
    step(made.first);
    rest_ = rest_of(rest_, 1);
    const bool is_next = !rest_.empty() && rest_.front().share == made.share &&
                         rest_.front().first == made.first + 1;
    if (!is_next) hidden_ = zero_hidden(settings_.model, settings_.batch);
  }
  hidden_ = detached(hidden_);
  return total_;
}

void Trainer::step(std::int64_t number) {
  const std::int64_t first = number * settings_.bptt;
  const std::int64_t rows = std::min(settings_.bptt, columns_.size(0) - 1 - first);
  const at::Tensor words = columns_.narrow(0, first, rows);
  const at::Tensor targets = columns_.narrow(0, first + 1, rows);

  const sinew::autograd::Context context(worker_);
  Hidden hidden = detached(hidden_);  // what came before this step gets no gradient
  const at::Tensor loss = loss_of(words, targets, hidden);
  sinew::autograd::backward(context, {loss});
  step_all(context,
           std::to_string(epoch_) + "." + std::to_string(share_) + "." + std::to_string(number));
  hidden_ = hidden;
  total_ += {loss.item<double>() * static_cast<double>(words.numel()), words.numel()};
}

// When it throws, what is known of the step is kept, and the step may be made again.
void Trainer::step_all(const sinew::autograd::Context& context, const std::string& name) {
  using Result = examples::HistoryFile::Result;
  if (!failed_) {
    attempt_ = {worker_.name() + "." + std::to_string(++attempts_), name, run_};
    history_.add(attempt_, Result::kUnknown);
  }
  sinew::optim::StepReport report;
  try {
    if (failed_) {
      report = sinew::optim::repeat(server_optimizer_, *failed_, context);
    } else {
      const auto server_step = server_optimizer_.step_async(context.id());
      lstm_optimizer_.step(context);
      lstm_is_ahead_ = true;
      report = server_step.wait();
    }
  } catch (const sinew::optim::PartialStep& error) {
    failed_ = error;
    throw;
  }
  failed_.reset();
  if (!std::exchange(lstm_is_ahead_, false)) lstm_optimizer_.step(context);
  versions_.clear();
  for (const auto& owner : report.owners) versions_.push_back(owner.version);
  history_.add(attempt_, Result::kOk, versions_by_server(versions_));
}

Loss Trainer::evaluate(const std::vector<std::int64_t>& shares) {
  const at::NoGradGuard no_grad;
  lstm_->eval();
  Loss total;
  for (const std::int64_t share : shares) {
    const at::Tensor columns = in_columns(corpus_.valid, share);
    Hidden hidden = zero_hidden(settings_.model, settings_.batch);
    for (std::int64_t first = 0; first + 1 < columns.size(0); first += settings_.bptt) {
      const std::int64_t rows = std::min(settings_.bptt, columns.size(0) - 1 - first);
      const at::Tensor words = columns.narrow(0, first, rows);
      const at::Tensor loss = loss_of(words, columns.narrow(0, first + 1, rows), hidden);
      total += {loss.item<double>() * static_cast<double>(words.numel()), words.numel()};
    }
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

void Trainer::begin_checkpoint(const std::string& folder) {
  std::get<0>(kept_hidden_).copy_(std::get<0>(hidden_));
  std::get<1>(kept_hidden_).copy_(std::get<1>(hidden_));
  sinew::optim::SaveOptions how;
  how.kept = kCheckpointsKept;
  saving_ = lstm_optimizer_.save_async(folder, how);
}

std::uint64_t Trainer::finish_checkpoint() { return saving_.wait().number; }

void Trainer::restore(const ServerModel& servers, const DistributedOptimizer& server_optimizer,
                      const std::string& folder, std::uint64_t number, const Position& position,
                      std::int64_t run) {
  run_ = run;
  // What was heard of the run before is no version of this one.
  versions_.clear();
  servers_ = servers;
  server_optimizer_ = server_optimizer;
  lstm_optimizer_.load(folder, number);
  hidden_ = {std::get<0>(kept_hidden_).clone(), std::get<1>(kept_hidden_).clone()};
  epoch_ = position.epoch;
  rest_ = rest_of(position.plan, position.done);
  done_ = end_ = position.done;
}

void add_trainer_methods(sinew::MethodTable& methods) { methods.serve<Trainer>(); }

}  // namespace ps_rnn
