// A rank of a group in a process of its own: reads commands, and answers each with a line. What the
// tests of tests/groups ask for.

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "ATen/Parallel.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "sinew/groups/process_group.h"
#include "sinew/groups/store.h"
#include "sinew/rpc/base/error.h"
#include "sinew/sinew.h"
#include "sinew/tests/groups/large_tensors.h"

namespace groupsapp {

std::int64_t twice(std::int64_t x) { return 2 * x; }

}  // namespace groupsapp

SINEW_METHOD(groupsapp::twice);

namespace {

using groupsapp::twice;
using Arguments = std::map<std::string, std::string>;

int number(const Arguments& arguments, const std::string& key, int otherwise) {
  const auto found = arguments.find(key);
  int value = otherwise;
  if (found != arguments.end() && !absl::SimpleAtoi(found->second, &value)) {
    throw std::invalid_argument(key + " is no number");
  }
  return value;
}

/// What a process has.
struct State {
  sinew::Worker worker;
  sinew::ProcessGroup group;
  sinew::Store store;
};

std::string start_worker(State& state, const Arguments& arguments) {
  sinew::WorkerOptions options;
  options.name = absl::StrCat("worker", arguments.at("rank"));
  options.init_method = arguments.at("init");
  options.rank = number(arguments, "rank", 0);
  options.world_size = number(arguments, "size", 1);
  options.methods.add<&twice>();
  state.worker = sinew::init_rpc(options);
  return "started";
}

std::string start_group(State& state, const Arguments& arguments) {
  sinew::GroupOptions options;
  options.backend = "gloo";
  options.timeout = std::chrono::milliseconds(number(arguments, "timeout_ms", 60'000));
  if (arguments.count("name") != 0) options.name = arguments.at("name");
  if (arguments.count("bind") != 0) options.bind_address = arguments.at("bind");
  options.allow_unencrypted = arguments.count("bind") != 0 || arguments.count("clear") != 0;
  if (arguments.count("over") != 0) {
    options.worker = state.worker;
  } else {
    options.init_method = arguments.at("init");
    options.rank = number(arguments, "rank", 0);
    options.world_size = number(arguments, "size", 1);
  }
  state.group = sinew::init_process_group(options);
  return absl::StrCat("rank ", state.group.rank(), " of ", state.group.size());
}

std::string all_reduce(State& state, const Arguments& arguments) {
  const at::Tensor tensor =
      at::full({number(arguments, "count", 4)}, state.group.rank() + 1, at::kFloat);
  sinew::GroupCallOptions options;
  if (arguments.count("timeout_ms") != 0) {
    options.timeout = std::chrono::milliseconds(number(arguments, "timeout_ms", 0));
  }
  const int rounds = number(arguments, "rounds", 1);
  for (int round = 0; round < rounds; ++round) {
    state.group.all_reduce(tensor, sinew::ReduceOp::kMax, options);
  }
  return absl::StrCat(tensor[0].item<float>());
}

std::string run(State& state, const std::string& command, const Arguments& arguments) {
  if (command == "worker") return start_worker(state, arguments);
  if (command == "group") return start_group(state, arguments);
  if (command == "all_reduce") return all_reduce(state, arguments);
  if (command == "large") {
    return sinew::testing::run_large(state.group, arguments.at("function"),
                                     number(arguments, "mib", 0));
  }
  if (command == "call") {
    return absl::StrCat(state.worker.peer(arguments.at("to")).call<&twice>(std::int64_t{21}));
  }
  if (command == "destroy") {
    state.group.destroy();
    state.group = sinew::ProcessGroup();
    return "destroyed";
  }
  if (command == "shutdown") {
    state.worker.shutdown();
    return "down";
  }
  if (command == "store") {
    state.store = sinew::Store::over(state.worker);
    return "opened";
  }
  if (command == "get") {
    return state.store.get(arguments.at("key"),
                           {std::chrono::milliseconds(number(arguments, "timeout_ms", 60'000))});
  }
  if (command == "set") {
    state.store.set(arguments.at("key"), arguments.at("value"));
    return "set";
  }
  throw std::invalid_argument("no such command: " + command);
}

}  // namespace

int main() {
  at::set_num_threads(1);
  // Whatever the test was started with.
  std::signal(SIGPIPE, SIG_DFL);
  State state;
  std::string line;
  while (std::getline(std::cin, line)) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    Arguments arguments;
    for (std::size_t at = 1; at < words.size(); ++at) {
      const std::pair<std::string, std::string> pair =
          absl::StrSplit(words[at], absl::MaxSplits('=', 1));
      arguments.insert(pair);
    }
    std::string answer;
    try {
      answer = absl::StrCat("ok ", run(state, words[0], arguments));
    } catch (const sinew::RpcError& error) {
      // As a program that does not catch it, without its noise.
      if (arguments.count("dies") != 0) std::_Exit(1);
      answer = absl::StrCat("error ", absl::StatusCodeToString(error.code()), " ", error.message());
    } catch (const std::exception& error) {
      answer = absl::StrCat("exception ", error.what());
    }
    std::cout << absl::StrReplaceAll(answer, {{"\n", " "}}) << std::endl;
  }
  return 0;
}
