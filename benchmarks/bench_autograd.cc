// Sinew's own side of `tools/bench autograd`: backward passes, training steps, checkpoints and the
// RNN of PyTorch's parameter-server tutorial, between processes over gRPC on loopback; and the same
// RNN in one.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "sinew/benchmarks/failover.h"
#include "sinew/benchmarks/measure.h"
#include "sinew/benchmarks/one_thread.h"
#include "sinew/benchmarks/worker_processes.h"
#include "sinew/examples/ps_rnn/model.h"
#include "sinew/sinew.h"
#include "torch/optim/sgd.h"

namespace bench {

constexpr double kLearningRate = 0.05;

/// What the figures of a single layer call.
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

namespace bench {

sinew::optim::SgdOptions sgd() {
  sinew::optim::SgdOptions options;
  options.lr = kLearningRate;
  return options;
}

/// A trainer of a layer that the server has.
class LayerTrainer {
 public:
  explicit LayerTrainer(const sinew::RemoteModule<Layer>& layer)
      : worker_(sinew::current_worker()),
        layer_(layer),
        optimizer_(worker_, layer.remote_parameters(), sgd()) {
    input_ = at::randn({8, layer_.remote_parameters().front().to_here().size(1)});
  }
  void train(std::int64_t steps) {
    for (std::int64_t step = 0; step < steps; ++step) {
      const sinew::autograd::Context context(worker_);
      sinew::autograd::backward(context, {layer_.forward(input_).sum()});
      optimizer_.step(context);
    }
  }
  const sinew::optim::DistributedOptimizer& optimizer() const { return optimizer_; }

 private:
  const sinew::Worker worker_;
  const sinew::RemoteModule<Layer> layer_;
  const sinew::optim::DistributedOptimizer optimizer_;
  at::Tensor input_;
};

}  // namespace bench

SINEW_SERVICE(bench::LayerTrainer, (sinew::RemoteModule<bench::Layer>), train);

namespace {

using ps_rnn::Hidden;
using ps_rnn::ModelSettings;
using sinew::autograd::Context;
using sinew::bench::Options;

constexpr auto kLongestRun = std::chrono::hours(1);

/// Figure by the number of trainers.
const std::map<int, std::string> kTrainerFigures = {
    {1, "ps_step_per_s_1"}, {2, "ps_step_per_s_2"}, {4, "ps_step_per_s_4"}};
constexpr const char* kCheckpointStall = "checkpoint_stall_ms";
constexpr const char* kFailover = "failover_s";
constexpr const char* kFailoverCheckpoint = "failover_checkpoint_s";

/// This process, the server, and further trainers.
std::vector<std::string> worker_names(int trainers) {
  std::vector<std::string> names = sinew::bench::numbered_names("client", "trainer", trainers - 1);
  names.insert(names.begin() + 1, "server");
  return names;
}

/// A folder for checkpoints, which goes with this.
class CheckpointRoot {
 public:
  explicit CheckpointRoot(const std::string& stem)
      : path_(std::filesystem::temp_directory_path() /
              ("sinew_bench_autograd_" + stem + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~CheckpointRoot() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  CheckpointRoot(const CheckpointRoot&) = delete;
  CheckpointRoot& operator=(const CheckpointRoot&) = delete;

  std::string path() const { return path_.string(); }

 private:
  const std::filesystem::path path_;
};

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
        worker_.counters()["rpc.requests"] + worker_.peer("server").call<&bench::requests>();
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
  const sinew::optim::DistributedOptimizer optimizer(worker, layer.remote_parameters(),
                                                     bench::sgd());
  measure(options, worker, kTrainStep, steps, [&] {
    const Context context(worker);
    sinew::autograd::backward(context, {layer.forward(input).sum()});
    optimizer.step(context);
  });
}

/// Steps of all trainers of one layer at the server, each with an optimizer of its own.
void measure_trainers(const Options& options, const sinew::Worker& worker, int trainers,
                      const std::string& figure) {
  if (!options.wants(figure)) return;
  const sinew::RemoteModule<bench::Layer> layer(worker, "server", 1024);
  bench::LayerTrainer own(layer);
  std::vector<sinew::RRef<bench::LayerTrainer>> others;
  for (int number = 1; number < trainers; ++number) {
    others.push_back(
        worker.peer("trainer" + std::to_string(number)).remote<bench::LayerTrainer>(layer));
  }
  const auto train = [&](std::int64_t steps) {
    std::vector<sinew::Future<void>> running;
    for (const auto& other : others) {
      running.push_back(other.within(sinew::kNoTimeout).async<&bench::LayerTrainer::train>(steps));
    }
    own.train(steps);
    sinew::wait_all(std::move(running));
  };
  train(5);
  const std::int64_t steps = options.quick() ? 20 : 400;
  const auto start = std::chrono::steady_clock::now();
  train(steps);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  options.report(figure, static_cast<double>(trainers * steps) / took.count());
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// What a checkpoint of 256 MiB costs who trains on: the time of the steps while it is written,
/// beyond what as many take without.
void measure_checkpoint(const Options& options, const sinew::Worker& worker) {
  if (!options.wants(kCheckpointStall)) return;
  const sinew::RemoteModule<bench::Layer> layer(worker, "server", 8192);
  bench::LayerTrainer trainer(layer);
  trainer.train(3);
  const double step_us =
      sinew::bench::measure_latency(options.quick() ? 3 : 15, [&] { trainer.train(1); }).p50_us;
  sinew::optim::SaveOptions how;
  how.kept = 1;
  std::vector<double> stalls_ms;
  for (int round = 0; round < (options.quick() ? 1 : 5); ++round) {
    const auto start = std::chrono::steady_clock::now();
    const auto saved = trainer.optimizer().save_async("run", how);
    int steps = 0;
    for (; !saved.done(); ++steps) trainer.train(1);
    saved.wait();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    stalls_ms.push_back(took.count() - steps * step_us / 1000);
  }
  options.report(kCheckpointStall, median(std::move(stalls_ms)));
}

/// From the kill of a server with 16 MiB of parameters to the next step that is acknowledged.
void measure_failover(const Options& options, const sinew::bench::FailoverProcesses& processes) {
  constexpr std::int64_t kWidth = 2048;
  const sinew::Worker worker = sinew::init_rpc(processes.place("trainer"));
  const at::Tensor input = at::randn({8, kWidth});
  const auto step = [&](const sinew::RemoteModule<bench::Layer>& layer,
                        const sinew::optim::DistributedOptimizer& optimizer) {
    const Context context(worker);
    sinew::autograd::backward(context, {layer.forward(input).sum()});
    optimizer.step(context);
  };
  if (options.wants(kFailover)) {
    options.report(kFailover, median(processes.standbys_take_over<bench::Layer>(
                                  worker, kWidth, bench::sgd(), step)));
  }
  if (options.wants(kFailoverCheckpoint)) {
    options.report(kFailoverCheckpoint, median(processes.servers_load<bench::Layer>(
                                            worker, kWidth, bench::sgd(), step)));
  }
  // Those that were not killed serve for ever.
  worker.shutdown({false, std::chrono::seconds(10), false});
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
  const sinew::optim::DistributedOptimizer optimizer(worker, parameters, bench::sgd());
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
            : model.decoder.module_rref().call<&ps_rnn::Decoder::loss>(output, targets);
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
  torch::optim::SGD optimizer(parameters, bench::kLearningRate);
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
  int trainers = 1;
  for (const auto& [count, figure] : kTrainerFigures) with_server.push_back(figure);
  with_server.emplace_back(kCheckpointStall);
  figures.insert(figures.end(), with_server.begin(), with_server.end());
  figures.insert(figures.end(), {kFailover, kFailoverCheckpoint});
  const Options options = sinew::bench::parse_options(argc, argv, figures);
  for (const auto& [count, figure] : kTrainerFigures) {
    if (options.wants(figure)) trainers = count;
  }
  const CheckpointRoot failover_folder("failover");
  std::optional<sinew::bench::FailoverProcesses> failover;
  if (options.wants_any({kFailover, kFailoverCheckpoint})) {
    failover.emplace(failover_folder.path(), options.quick() ? 1 : 5,
                     [](sinew::WorkerOptions& worker) { worker.methods.serve<bench::Layer>(); });
  }
  const int tutorial_steps = options.quick() ? 50 : 600;
  const int word_steps = options.quick() ? 3 : 20;
  if (std::any_of(with_server.begin(), with_server.end(),
                  [&](const std::string& figure) { return options.wants(figure); })) {
    const CheckpointRoot root("server");
    const sinew::bench::WorkerProcesses others(
        worker_names(trainers),
        [&](const sinew::Worker& worker) {
          sinew::optim::serve_checkpoints(worker, root.path());
          worker.barrier(kLongestRun);  // they can be called
          worker.barrier(kLongestRun);  // all is measured
        },
        [](sinew::WorkerOptions& worker) {
          worker.methods.serve<bench::Layer, bench::LayerTrainer>().add<&bench::requests>();
          ps_rnn::add_server_methods(worker.methods);
        });
    sinew::bench::compute_on_one_thread();
    const sinew::Worker worker = sinew::init_rpc(others.place(0));
    worker.barrier(kLongestRun);
    measure_layer(options, worker);
    measure_rnn(options, worker, kTutorial, tutorial(), LossAt::kTrainer, tutorial_steps);
    measure_rnn(options, worker, kWords, words(), LossAt::kTrainer, word_steps);
    measure_rnn(options, worker, kWordsLossAtServer, words(), LossAt::kServer, word_steps);
    for (const auto& [count, figure] : kTrainerFigures) {
      measure_trainers(options, worker, count, figure);
    }
    measure_checkpoint(options, worker);
    worker.barrier(kLongestRun);
    worker.shutdown();
  }
  sinew::bench::compute_on_one_thread();
  if (failover) measure_failover(options, *failover);
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
