// Sinew's own side of `tools/bench autograd`: backward passes, training steps and the RNN of
// PyTorch's parameter-server tutorial, between two processes over gRPC on loopback; and the same
// RNN in one.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "sinew/benchmarks/measure.h"
#include "sinew/benchmarks/one_thread.h"
#include "sinew/benchmarks/server_process.h"
#include "sinew/examples/ps_rnn/model.h"
#include "sinew/sinew.h"
#include "torch/optim/sgd.h"

namespace bench {

/// What the two figures of a single layer call.
class Layer : public torch::nn::Module {
 public:
  explicit Layer(std::int64_t width) {
    linear_ = register_module("linear", torch::nn::Linear(width, width));
  }
  at::Tensor forward(const at::Tensor& input) { return linear_->forward(input); }

 private:
  torch::nn::Linear linear_{nullptr};
};

/// Calls that this worker has made to others, those of its layers too.
std::int64_t requests() { return sinew::current_worker().counters()["rpc.requests"]; }

}  // namespace bench

SINEW_MODULE(bench::Layer, (std::int64_t));
SINEW_METHOD(bench::requests);

namespace {

using ps_rnn::Hidden;
using ps_rnn::ModelSettings;
using sinew::autograd::Context;
using sinew::bench::Options;

constexpr double kLearningRate = 0.05;

sinew::Worker start_worker(int rank, std::uint16_t port) {
  sinew::WorkerOptions options;
  options.name = rank == 0 ? "server" : "client";
  options.methods.serve<bench::Layer>().add<&bench::requests>();
  ps_rnn::add_server_methods(options.methods);
  options.init_method = "tcp://127.0.0.1:" + std::to_string(port);
  options.rank = rank;
  options.world_size = 2;
  return sinew::init_rpc(std::move(options));
}

void serve(const sinew::bench::ServerProcess::ReportPort& report) {
  sinew::bench::compute_on_one_thread();
  const std::uint16_t port = sinew::bench::free_loopback_port();
  report(port);
  const sinew::Worker worker = start_worker(0, port);
  sinew::ShutdownOptions with_the_client;
  with_the_client.timeout = std::chrono::hours(1);
  worker.shutdown(with_the_client);
  for (;;) pause();  // The client's process kills this one.
}

/// An iteration that is measured: its time, and how many messages it takes.
struct Iteration {
  std::string time_figure;
  /// Of the time, in microseconds.
  double unit = 1;
  /// Empty: not counted.
  std::string messages_figure;
  /// Fewer messages cannot do it: see benchmarks/README.md.
  int messages_needed = 0;
};

/// How many calls both workers have made, but for those that ask.
class RequestCount {
 public:
  explicit RequestCount(const sinew::Worker& worker) : worker_(worker) {}

  /// Once no more are made: contexts are released off the program's way.
  std::int64_t settled() {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    std::int64_t last = -1;
    for (std::int64_t now = get(); now != last; now = get()) {
      if (std::chrono::steady_clock::now() > give_up) {
        throw std::runtime_error("calls between the workers go on though no step is made");
      }
      last = now;
      // Longer than it takes until a context is released.
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return last;
  }

 private:
  std::int64_t get() {
    const std::int64_t all =
        worker_.counters()["rpc.requests"] + worker_.rpc_sync<&bench::requests>("server");
    return all - asked_++;
  }

  const sinew::Worker& worker_;
  std::int64_t asked_ = 0;
};

/// Reports the median time of `step`, and its messages: two for a call, also those that layers make
/// by themselves on either side.
void measure(const Options& options, const sinew::Worker& worker, const Iteration& iteration,
             int steps, const std::function<void()>& step) {
  for (int i = 0; i < 3; ++i) step();  // Connections, facts and memory are as they will be.
  if (options.wants(iteration.time_figure)) {
    const auto latency = sinew::bench::measure_latency(steps, step);
    options.report(iteration.time_figure, latency.p50_us / iteration.unit);
  }
  if (!options.wants(iteration.messages_figure)) return;
  RequestCount count(worker);
  constexpr int kCounted = 50;
  const std::int64_t before = count.settled();
  for (int i = 0; i < kCounted; ++i) step();
  const std::int64_t calls = count.settled() - before;
  options.report(iteration.messages_figure, 2.0 * static_cast<double>(calls) / kCounted);
}

// The call and its result, a gradient there and one back, and the end of the context, answered.
const Iteration kBackward{"dist_backward_linear64_p50_us", 1, "dist_backward_messages", 6};
// And the step.
const Iteration kTrainStep{"dist_train_step_linear64_p50_us", 1, "dist_train_step_messages", 8};
// Two calls, two gradients there with one back and an end, the step, the end of the context.
const Iteration kTutorial{"rnn_tutorial_iter_p50_us", 1, "rnn_iter_messages", 12};
const Iteration kWords{"rnn_words_iter_p50_ms", 1000, "", 0};
const Iteration kWordsLossAtServer{"rnn_words_loss_at_server_iter_p50_ms", 1000, "", 0};

void measure_layer(const Options& options, const sinew::Worker& worker) {
  const sinew::RemoteModule<bench::Layer> layer(worker, "server", 64);
  const int steps = options.quick() ? 100 : 1200;
  const at::Tensor input = at::randn({8, 64});
  const at::Tensor leaf = at::randn({8, 64}).requires_grad_();
  if (options.wants_any({kBackward.time_figure, kBackward.messages_figure})) {
    measure(options, worker, kBackward, steps, [&] {
      const Context context(worker);
      sinew::autograd::backward(context, {layer.forward(leaf).sum()});
    });
  }
  if (!options.wants_any({kTrainStep.time_figure, kTrainStep.messages_figure})) return;
  sinew::optim::SgdOptions sgd;
  sgd.lr = kLearningRate;
  const sinew::optim::DistributedOptimizer optimizer(worker, layer.remote_parameters(), sgd);
  measure(options, worker, kTrainStep, steps, [&] {
    const Context context(worker);
    sinew::autograd::backward(context, {layer.forward(input).sum()});
    optimizer.step(context);
  });
}

/// Sizes of an RNN and of what it reads in an iteration.
struct Work {
  ModelSettings model;
  std::int64_t steps = 0;
  std::int64_t columns = 0;

  at::Tensor words() const { return at::randint(model.ntoken, {steps, columns}, at::kLong); }
  Hidden first_hidden() const { return ps_rnn::zero_hidden(model, columns); }
};

Work tutorial() { return {{10, 2, 3, 4, 0.5, 1, false}, 5, 3}; }
Work words() { return {{10'000, 200, 200, 2, 0.5, 1, false}, 35, 20}; }

/// Where an RNN's loss is computed: the trainer needs the scores of all words for that.
enum class LossAt { kTrainer, kServer };

/// The tutorial's model: the server has the embedding and the decoder.
void measure_rnn(const Options& options, const sinew::Worker& worker, const Iteration& iteration,
                 const Work& work, LossAt loss_at, int steps) {
  if (!options.wants_any({iteration.time_figure, iteration.messages_figure})) return;
  const auto model = ps_rnn::ServerModel::make({worker.peer("server")}, work.model);
  torch::nn::LSTM lstm = ps_rnn::make_lstm(work.model);
  std::vector<sinew::RRef<at::Tensor>> parameters = model.parameters();
  for (const auto& parameter : sinew::parameter_rrefs(worker, lstm))
    parameters.push_back(parameter);
  sinew::optim::SgdOptions sgd;
  sgd.lr = kLearningRate;
  const sinew::optim::DistributedOptimizer optimizer(worker, parameters, sgd);
  const at::Tensor input = work.words();
  const at::Tensor targets = work.words();
  Hidden hidden = work.first_hidden();
  measure(options, worker, iteration, steps, [&] {
    const Context context(worker);
    at::Tensor output;
    std::tie(output, hidden) = lstm->forward(model.embed(input), ps_rnn::detached(hidden));
    const at::Tensor loss =
        loss_at == LossAt::kTrainer
            ? ps_rnn::cross_entropy(model.decoder.forward(output), targets)
            : sinew::rpc_sync<&ps_rnn::Decoder::loss>(model.decoder.module_rref(), output, targets);
    sinew::autograd::backward(context, {loss});
    optimizer.step(context);
  });
}

/// The same modules and the same arithmetic without a server.
void measure_local_rnn(const Options& options, const std::string& figure, const Work& work,
                       int steps, double unit) {
  if (!options.wants(figure)) return;
  ps_rnn::EmbeddingTable embedding(work.model, 0, 1);
  ps_rnn::Decoder decoder(work.model);
  torch::nn::LSTM lstm = ps_rnn::make_lstm(work.model);
  std::vector<at::Tensor> parameters;
  for (const auto& some : {embedding.parameters(), decoder.parameters(), lstm->parameters()}) {
    parameters.insert(parameters.end(), some.begin(), some.end());
  }
  torch::optim::SGD optimizer(parameters, kLearningRate);
  const at::Tensor input = work.words();
  const at::Tensor targets = work.words();
  Hidden hidden = work.first_hidden();
  const auto step = [&] {
    at::Tensor output;
    std::tie(output, hidden) = lstm->forward(embedding.forward(input), ps_rnn::detached(hidden));
    const at::Tensor loss = ps_rnn::cross_entropy(decoder.forward(output), targets);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  };
  for (int i = 0; i < 3; ++i) step();
  options.report(figure, sinew::bench::measure_latency(steps, step).p50_us / unit);
}

/// What needs no server: the constants, and the same RNNs in one process.
constexpr const char* kLocalTutorial = "rnn_tutorial_local_iter_p50_us";
constexpr const char* kLocalWords = "rnn_words_local_iter_p50_ms";

int run(int argc, char** argv) {
  std::vector<std::string> with_server;
  std::vector<std::string> figures = {kLocalTutorial, kLocalWords};
  for (const Iteration* iteration :
       {&kBackward, &kTrainStep, &kTutorial, &kWords, &kWordsLossAtServer}) {
    with_server.push_back(iteration->time_figure);
    if (iteration->messages_figure.empty()) continue;
    with_server.push_back(iteration->messages_figure);
    figures.push_back(iteration->messages_figure + "_needed");
  }
  figures.insert(figures.end(), with_server.begin(), with_server.end());
  const Options options = sinew::bench::parse_options(argc, argv, figures);
  const int tutorial_steps = options.quick() ? 50 : 600;
  const int word_steps = options.quick() ? 3 : 20;
  if (std::any_of(with_server.begin(), with_server.end(),
                  [&](const std::string& figure) { return options.wants(figure); })) {
    const sinew::bench::ServerProcess server(&serve);
    sinew::bench::compute_on_one_thread();
    const sinew::Worker worker = start_worker(1, server.port());
    measure_layer(options, worker);
    measure_rnn(options, worker, kTutorial, tutorial(), LossAt::kTrainer, tutorial_steps);
    measure_rnn(options, worker, kWords, words(), LossAt::kTrainer, word_steps);
    measure_rnn(options, worker, kWordsLossAtServer, words(), LossAt::kServer, word_steps);
    worker.shutdown();
  }
  sinew::bench::compute_on_one_thread();
  measure_local_rnn(options, kLocalTutorial, tutorial(), tutorial_steps, kTutorial.unit);
  measure_local_rnn(options, kLocalWords, words(), word_steps, kWords.unit);
  for (const Iteration* iteration : {&kBackward, &kTrainStep, &kTutorial}) {
    options.report(iteration->messages_figure + "_needed", iteration->messages_needed);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return sinew::bench::run_main("bench_autograd", &run, argc, argv);
}
