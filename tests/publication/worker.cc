// A writer or a reader of weights in a process that is killed: see process_test.cc. Does what its
// standard input says, a line at a time, and answers each with one line.
//
//   start NAME INIT RANK    starts a worker
//   write ELEMENTS MS       publishes weights without end, so often: all elements are the version's
//                           own number
//   publish ELEMENTS VALUE  publishes weights once; answers with the version
//   step                    the next version: a step of Adam with lr 1e-6 on what was published
//   read ADDRESS share|own  subscribes
//   wait VERSION            until that is there; answers with it
//   check                   version, how many were seen, and how many of these were mixtures or
//                           came after a later one
//   status                  mapped, changed, whole, received bytes, bytes beside gRPC, resident MiB

#include <atomic>
#include <chrono>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "ATen/ATen.h"
#include "ATen/Parallel.h"
#include "sinew/optim/publication.h"
#include "sinew/sinew.h"

namespace {

using sinew::optim::Publication;
using sinew::optim::StateDict;
using sinew::optim::Subscription;
using sinew::optim::Weights;

struct State {
  sinew::Worker worker;
  Publication publication;
  Subscription subscription;
  // What training has.
  at::Tensor master;
  std::atomic<std::uint64_t> seen{0};
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<std::uint64_t> last{0};
};

StateDict filled(std::int64_t elements, double value) {
  return {{"a", at::full({elements}, value, at::kDouble)},
          {"b", at::full({7}, value, at::kDouble)}};
}

void check(State& state, const Weights& weights) {
  ++state.seen;
  const at::Tensor first = weights.tensors.begin()->second.flatten()[0];
  bool is_right = weights.version > state.last.exchange(weights.version);
  for (const auto& [name, tensor] : weights.tensors) {
    is_right = is_right && tensor.eq(first).all().item<bool>();
  }
  if (!is_right) ++state.wrong;
}

Publication& publication(State& state, bool as_bf16) {
  if (!state.publication.valid()) {
    sinew::optim::PublicationOptions options;
    options.as_bf16 = as_bf16;
    state.publication = Publication(state.worker, "weights", options);
  }
  return state.publication;
}

std::string start(State& state, std::istringstream& words) {
  sinew::WorkerOptions options;
  int rank = 0;
  words >> options.name >> options.init_method >> rank;
  options.rank = rank;
  options.world_size = 0;
  options.found_job = sinew::FoundJob::kRankZero;
  state.worker = sinew::init_rpc(std::move(options));
  return "ok";
}

std::string write(State& state, std::istringstream& words) {
  std::int64_t elements = 0;
  int pause_ms = 0;
  words >> elements >> pause_ms;
  const Publication& to = publication(state, false);
  std::thread([to, elements, pause_ms] {
    for (double value = 1;; ++value) {
      to.publish(filled(elements, value));
      std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
    }
  }).detach();
  return "ok";
}

std::string publish(State& state, std::istringstream& words) {
  std::int64_t elements = 0;
  double value = 0;
  words >> elements >> value;
  at::manual_seed(1);
  state.master = at::randn({elements}) * value;
  return std::to_string(publication(state, true).publish({{"model", state.master}}));
}

// Adam's first steps move each element by about the learning rate.
std::string step(State& state) {
  const at::Tensor direction = at::randn(state.master.sizes()).sign();
  state.master.sub_(direction * (at::rand(state.master.sizes()) * 2), 1e-6);
  return std::to_string(publication(state, true).publish({{"model", state.master}}));
}

std::string read(State& state, std::istringstream& words) {
  std::string address;
  std::string how;
  words >> address >> how;
  sinew::optim::SubscriptionOptions options;
  options.shares_memory = how == "share";
  if (how != "figures") {
    options.on_version = [&state](const std::shared_ptr<const Weights>& weights) {
      if (weights->tensors.size() == 2) check(state, *weights);
    };
  }
  state.subscription = Subscription(state.worker, address, options);
  return "ok";
}

std::string status(State& state) {
  const sinew::optim::SubscriptionStatus status = state.subscription.status();
  std::int64_t resident = 0;
  std::ifstream statm("/proc/self/statm");
  statm >> resident >> resident;
  std::ostringstream text;
  text << status.mapped << " " << status.changed << " " << status.whole << " "
       << status.received_bytes << " " << state.worker.counters()["rpc.plane_fetched_bytes"] << " "
       << resident / 256 << " age_ms "
       << std::chrono::duration_cast<std::chrono::milliseconds>(status.age).count();
  return text.str();
}

std::string answer(State& state, const std::string& line) {
  std::istringstream words(line);
  std::string command;
  words >> command;
  if (command == "start") return start(state, words);
  if (command == "write") return write(state, words);
  if (command == "publish") return publish(state, words);
  if (command == "step") return step(state);
  if (command == "read") return read(state, words);
  if (command == "status") return status(state);
  if (command == "wait") {
    std::uint64_t version = 0;
    words >> version;
    return std::to_string(state.subscription.wait_for(version, std::chrono::seconds(120))->version);
  }
  if (command == "check") {
    std::ostringstream text;
    text << state.subscription.status().version << " " << state.seen << " " << state.wrong;
    return text.str();
  }
  return "error: no such command";
}

}  // namespace

int main() {
  at::set_num_threads(1);
  // Threads that publish go on until the process ends.
  auto* const state = new State;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::string text;
    try {
      text = answer(*state, line);
    } catch (const std::exception& error) {
      text = std::string("error: ") + error.what();
    }
    std::cout << text << std::endl;
  }
  std::_Exit(0);
}
