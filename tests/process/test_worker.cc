// A worker that does what its standard input says, a line at a time, and answers each with one
// line: "ok", or "error", the code and the text.
//
//   start name=b init=tcp://127.0.0.1:29500 rank=1 world=2 lease_ms=1500 ca=... cert=... key=...
//   tls=mutual|one-way add PEER            calls testapp::add there use NAME            calls a
//   method of the reference that testapp::keep stored under that name hold PEER NAME      makes a
//   Counter there and stores it members             names of the members, by rank barrier MS with
//   all members shutdown graceful|hard MS

#include <sys/prctl.h>

#include <csignal>
#include <iostream>
#include <map>
#include <sstream>
#include <string>

#include "sinew/tests/autograd/gated_chain.h"
#include "sinew/tests/autograd/random_graph.h"
#include "sinew/tests/optim/training.h"
#include "sinew/tests/process/tensor_methods.h"
#include "sinew/tests/process/test_methods.h"

namespace {

using sinew::Worker;
using Settings = std::map<std::string, std::string>;

std::chrono::nanoseconds milliseconds(const std::string& text) {
  return std::chrono::milliseconds(std::stol(text));
}

sinew::WorkerOptions options_of(const Settings& settings) {
  sinew::WorkerOptions options;
  options.methods = testapp::methods();
  options.methods.add<&testapp::negated>();
  testgrad::add_methods(options.methods);
  testgrad::add_chain_methods(options.methods);
  testoptim::add_methods(options.methods);
  options.num_threads = 2;
  sinew::TlsFiles files;
  std::string tls;
  const std::map<std::string, std::function<void(const std::string&)>> known = {
      {"name", [&](const std::string& value) { options.name = value; }},
      {"init", [&](const std::string& value) { options.init_method = value; }},
      {"rank", [&](const std::string& value) { options.rank = std::stoi(value); }},
      {"world", [&](const std::string& value) { options.world_size = std::stoi(value); }},
      {"job", [&](const std::string& value) { options.job = value; }},
      {"lease_ms", [&](const std::string& value) { options.lease = milliseconds(value); }},
      {"beat_ms",
       [&](const std::string& value) { options.heartbeat_interval = milliseconds(value); }},
      {"join_ms", [&](const std::string& value) { options.join_timeout = milliseconds(value); }},
      {"bind", [&](const std::string& value) { options.bind_address = value; }},
      {"same_host", [&](const std::string& value) { options.same_host = value == "1"; }},
      {"ucx", [&](const std::string& value) { options.ucx = value == "1"; }},
      {"receive_window",
       [&](const std::string& value) { options.receive_window_bytes = std::stoul(value); }},
      {"same_host", [&](const std::string& value) { options.same_host = value == "1"; }},
      {"ca", [&](const std::string& value) { files.ca = value; }},
      {"cert", [&](const std::string& value) { files.certificate = value; }},
      {"key", [&](const std::string& value) { files.key = value; }},
      {"tls", [&](const std::string& value) { tls = value; }},
  };
  for (const auto& [key, value] : settings) {
    if (key != "checkpoints") known.at(key)(value);
  }
  if (tls == "mutual") options.credentials = sinew::Credentials::mutual_tls(files);
  if (tls == "one-way") options.credentials = sinew::Credentials::tls(files);
  return options;
}

std::string run(Worker& worker, std::istringstream& words) {
  std::string command;
  words >> command;
  if (command == "start") {
    Settings settings;
    for (std::string word; words >> word;) {
      const std::size_t equals = word.find('=');
      settings[word.substr(0, equals)] = word.substr(equals + 1);
    }
    worker = sinew::init_rpc(options_of(settings));
    if (settings.count("checkpoints") > 0) {
      sinew::optim::serve_checkpoints(worker, settings["checkpoints"]);
    }
    return worker.address();
  }
  std::string one;
  std::string two;
  words >> one >> two;
  if (command == "add") return std::to_string(worker.rpc_sync<&testapp::add>(one, 1, 2));
  if (command == "use")
    return std::to_string(testapp::add_to(testapp::state_of(worker).kept.at(one), 1));
  if (command == "hold") {
    const auto counter = sinew::remote<testapp::Counter>(worker.peer(one), 1);
    counter.created().wait();
    testapp::state_of(worker).kept[two] = counter;
    return "";
  }
  if (command == "members") {
    std::string names;
    for (const sinew::WorkerInfo& member : worker.workers())
      names += (names.empty() ? "" : " ") + member.name;
    return names;
  }
  if (command == "barrier") {
    worker.barrier(milliseconds(one));
    return "";
  }
  if (command == "shutdown") {
    worker.shutdown({one == "graceful", milliseconds(two), false});
    return "";
  }
  throw std::invalid_argument("unknown command '" + command + "'");
}

}  // namespace

int main() {
  // A test that dies takes its processes along, also those that are stopped.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  Worker worker;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string answer;
    try {
      answer = "ok " + run(worker, words);
    } catch (const sinew::RpcError& error) {
      answer = "error " + absl::StatusCodeToString(error.code()) + " " + error.message();
    } catch (const std::exception& error) {
      answer = std::string("error UNKNOWN ") + error.what();
    }
    for (char& c : answer) c = c == '\n' ? ' ' : c;
    std::cout << answer << std::endl;
  }
  if (worker.valid()) worker.shutdown({false, std::chrono::seconds(60), false});
}
