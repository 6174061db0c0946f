// A process of the job: a trainer or a parameter server, which its rank decides. The first trainer
// leads: it makes the parts of the model at the others and tells the trainers when to train.

#include <chrono>
#include <exception>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ATen/Parallel.h"
#include "bible.h"
#include "course.h"
#include "ending.h"
#include "options.h"
#include "sinew/examples/common/device.h"
#include "sinew/examples/common/job.h"
#include "sinew/examples/common/stop_signal.h"
#include "sinew/sinew.h"

namespace {

constexpr int kUsageError = 2;
constexpr auto kLongestStart = std::chrono::minutes(5);

// Before the others are met, who would wait for nothing. Servers need not have the text.
void find_text(ps_rnn::Options& options) {
  if (options.data.empty()) options.data = ps_rnn::bible_text(options.output);
  ps_rnn::load_corpus(options.data, options.corpus);
}

std::string name_of(int rank, const ps_rnn::Options& options) {
  if (rank < options.trainers) return "trainer" + std::to_string(rank);
  const int server = rank - options.trainers;
  return server < options.servers ? "server" + std::to_string(server)
                                  : "standby" + std::to_string(server - options.servers);
}

sinew::Worker start_worker(const ps_rnn::Options& options, int rank) {
  sinew::WorkerOptions worker;
  worker.name = name_of(rank, options);
  if (rank < options.trainers) {
    ps_rnn::add_trainer_methods(worker.methods);
    worker.methods.add<&ps_rnn::Ending::wait>();
  } else {
    examples::device_of(options.device);  // or it says why not, before others wait
    ps_rnn::add_server_methods(worker.methods);
  }
  worker.init_method = options.init_method;
  if (options.init_method != "env://") {  // which has these itself
    worker.rank = rank;
    worker.world_size = options.trainers + options.served();
  }
  return examples::join_job(std::move(worker));
}

// From now on it can be called.
void get_ready(const sinew::Worker& worker, const ps_rnn::Options& options) {
  const auto root = std::make_shared<std::string>();
  if (!options.checkpoint.empty()) {
    std::filesystem::create_directories(options.checkpoint);
    *root = std::filesystem::absolute(options.checkpoint).string();
    sinew::optim::serve_checkpoints(worker, *root);
  }
  worker.publish(ps_rnn::kReady, root);
}

/// Returns what the program ends with.
int lead(const sinew::Worker& worker, const ps_rnn::Options& options) {
  ps_rnn::Team team;
  for (int rank = 0; rank < options.trainers + options.served(); ++rank) {
    const auto ready =
        worker.find<std::string>(name_of(rank, options) + "/" + ps_rnn::kReady, kLongestStart);
    if (rank < options.trainers) {
      team.trainers.push_back(ready.peer());
    } else {
      (rank < options.trainers + options.servers ? team.servers : team.standbys)
          .push_back(ready.peer());
    }
  }
  std::ostream& log = options.json ? std::cerr : std::cout;
  const ps_rnn::TrainingResult result = ps_rnn::train(worker, team, options, log);
  if (!options.output.empty()) {
    for (const char* name : {"loss_curve.csv", "loss_curve.svg"}) {
      log << "Loss curve: " << (options.output / name).string() << "\n";
    }
  }
  if (options.json) std::cout << ps_rnn::to_json(result, options) << std::endl;
  return result.stopped ? examples::stopped_status() : 0;
}

// As long as the first trainer lives.
void await_end(const sinew::Worker& worker) {
  const auto ending =
      worker.find<ps_rnn::Ending>(std::string("trainer0/") + ps_rnn::Ending::kName, kLongestStart);
  ending.within(sinew::kNoTimeout).call<&ps_rnn::Ending::wait>();
}

}  // namespace

int main(int argc, char** argv) {
  auto parsed = ps_rnn::parse_options(argc, argv);
  if (const int* status = std::get_if<int>(&parsed)) return *status;
  auto& options = std::get<ps_rnn::Options>(parsed);
  const auto found = examples::find_place(
      {"ps_rnn", "sinew-run --nproc 2 ps_rnn", options.served() + 1, options.served() + 256});
  if (const int* status = std::get_if<int>(&found)) return *status;
  const auto& place = std::get<sinew::LaunchPlace>(found);
  const int rank = place.rank;
  options.trainers = place.world_size - options.served();
  try {
    if (rank < options.trainers) find_text(options);
    at::set_num_threads(options.threads);
  } catch (const std::exception& error) {
    std::cerr << "ps_rnn: " << error.what() << std::endl;
    return kUsageError;
  }
  return examples::run_job(
      "ps_rnn", [&] { return start_worker(options, rank); },
      [&](const sinew::Worker& worker) {
        get_ready(worker, options);
        if (rank != 0) {
          await_end(worker);
          return 0;
        }
        const auto ending = std::make_shared<ps_rnn::Ending>();
        worker.publish(ps_rnn::Ending::kName, ending);
        const int status = lead(worker, options);
        ending->come();
        return status;
      });
}
