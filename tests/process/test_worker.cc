// A worker that does what its standard input says, a line at a time, and answers each with one
// line: "ok", or "error", the code and the text.
//
//   start name=b init=tcp://127.0.0.1:29500 rank=1 world=2 lease_ms=1500 ca=... cert=... key=...
//         tls=mutual|one-way founds=zero|always|never checkpoints=FOLDER
//         no_optimizers=1   serves none that is the tests' own
//   add PEER                  calls testapp::add there
//   hold PEER NAME            makes a Counter there and stores it
//   use NAME                  calls a method of the reference stored under that name
//   drop NAME                 gives it up
//   members                   names of the members, by rank
//   view                      with ranks and incarnations, and who coordinates: "b1#5e c2#7a, b"
//   counter NAME              one of the worker's counters
//   state                     whether it is in the job, and whether it runs
//   barrier MS                with all members
//   barrier MS NAME...        with those
//   meet MS                   a barrier with all, which is tried again while etcd does not answer
//   begin KEY COMMAND...      runs that on a thread of its own, which has begun with the answer
//   end KEY                   waits for the answer to that
//   watch                     counts events of members from now on
//   events                    these: "joined:c lost:c"
//   reason                    that of the last one
//   rejoin                    when it is evicted; its new address
//   rejoined                  whether it has done so by itself (start ... rejoins=1), and is used
//                             now
//   doze PEER MS              a method there holds its thread for so long
//   stall PEER                calls testapp::stall there
//   flood PEER                calls it without a pause from now on
//   flooded                   right answers of that so far
//   calm                      ends that, and tells how its calls ended
//   prefetch PEER N SIZE      asks for N results of so many bytes, and reads none
//   collect                   reads them: how many are right
//   stalled, release          calls that wait in testapp::stall; answers them
//   fork                      makes a child that does nothing, with its sockets; its pid
//   serve                     until the job is over, or SIGTERM comes: "job over", "asked"
//   shutdown graceful|hard MS   or without MS: without a limit
//   exit STATUS               without that, and without an answer

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <future>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sinew/rpc/worker/worker_core.h"
#include "sinew/rpc/worker/worker_parts.h"
#include "sinew/tests/autograd/gated_chain.h"
#include "sinew/tests/autograd/random_graph.h"
#include "sinew/tests/optim/own_optimizers.h"
#include "sinew/tests/optim/training.h"
#include "sinew/tests/process/flood.h"
#include "sinew/tests/process/link_methods.h"
#include "sinew/tests/process/tensor_methods.h"
#include "sinew/tests/process/test_methods.h"

namespace {

using sinew::Worker;
using Settings = std::map<std::string, std::string>;

std::chrono::nanoseconds milliseconds(const std::string& text) {
  return std::chrono::milliseconds(std::stol(text));
}

/// What on_rejoined was given last.
struct Rejoined {
  std::mutex mutex;
  Worker worker;
};
Rejoined& rejoined() {
  static auto& rejoined = *new Rejoined();
  return rejoined;
}

sinew::WorkerOptions options_of(const Settings& settings) {
  sinew::WorkerOptions options;
  options.methods = testapp::methods();
  options.methods.add<&testapp::negated>();
  testapp::add_link_methods(options.methods);
  testgrad::add_methods(options.methods);
  testgrad::add_chain_methods(options.methods);
  testoptim::add_methods(options.methods);
  if (settings.count("no_optimizers") == 0) testoptim::add_optimizers(options.methods);
  options.num_threads = 2;
  sinew::TlsFiles files;
  std::string tls;
  const std::map<std::string, std::function<void(const std::string&)>> known = {
      {"name", [&](const std::string& value) { options.name = value; }},
      {"init", [&](const std::string& value) { options.init_method = value; }},
      {"rank", [&](const std::string& value) { options.rank = std::stoi(value); }},
      {"world", [&](const std::string& value) { options.world_size = std::stoi(value); }},
      {"founds",
       [&](const std::string& value) {
         options.found_job = value == "always"  ? sinew::FoundJob::kAlways
                             : value == "never" ? sinew::FoundJob::kNever
                                                : sinew::FoundJob::kRankZero;
       }},
      {"job", [&](const std::string& value) { options.job = value; }},
      {"lease_ms", [&](const std::string& value) { options.lease = milliseconds(value); }},
      {"beat_ms",
       [&](const std::string& value) { options.heartbeat_interval = milliseconds(value); }},
      {"join_ms", [&](const std::string& value) { options.join_timeout = milliseconds(value); }},
      {"call_ms", [&](const std::string& value) { options.default_timeout = milliseconds(value); }},
      {"bind", [&](const std::string& value) { options.bind_address = value; }},
      {"found", [&](const std::string&) { options.found_job = sinew::FoundJob::kAlways; }},
      {"same_host", [&](const std::string& value) { options.same_host = value == "1"; }},
      {"ucx", [&](const std::string& value) { options.ucx = value == "1"; }},
      {"receive_window",
       [&](const std::string& value) { options.receive_window_bytes = std::stoul(value); }},
      {"send_window",
       [&](const std::string& value) { options.send_window_bytes = std::stoul(value); }},
      {"rejoins",
       [&](const std::string&) {
         options.on_rejoined = [](const Worker& next) {
           const std::lock_guard<std::mutex> lock(rejoined().mutex);
           rejoined().worker = next;
         };
       }},
      {"advertise", [&](const std::string& value) { options.advertise_address = value; }},
      {"network",
       [&](const std::string&) {
         options.credentials = sinew::Credentials::insecure_on_any_network();
       }},
      {"ca", [&](const std::string& value) { files.ca = value; }},
      {"cert", [&](const std::string& value) { files.certificate = value; }},
      {"key", [&](const std::string& value) { files.key = value; }},
      {"tls", [&](const std::string& value) { tls = value; }},
  };
  for (const auto& [key, value] : settings) {
    if (key != "checkpoints" && key != "no_optimizers") known.at(key)(value);
  }
  if (tls == "mutual") options.credentials = sinew::Credentials::mutual_tls(files);
  if (tls == "one-way") options.credentials = sinew::Credentials::tls(files);
  return options;
}

/// Results that were asked for and not read.
struct Prefetched {
  std::int64_t size = 0;
  std::vector<sinew::Future<at::Tensor>> results;

  std::string collect() {
    int right = 0;
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (testapp::is_filled(results[i].wait(), size, static_cast<std::int64_t>(i))) ++right;
    }
    results.clear();
    return std::to_string(right);
  }
};

/// What on_member() has told.
struct Events {
  std::mutex mutex;
  std::ostringstream text;
  std::string reason;
  sinew::MemberWatch watch;

  explicit Events(const Worker& worker) {
    watch = worker.on_member([this](const sinew::MemberEvent& event) {
      const std::lock_guard<std::mutex> lock(mutex);
      text << (text.tellp() > 0 ? " " : "") << event.kind << ":" << event.worker.name;
      reason = event.reason;
    });
  }
};

struct Tasks {
  std::unique_ptr<Events> events;
  std::unique_ptr<testapp::Flood> flood;
  Prefetched prefetched;
  std::map<std::string, std::future<std::string>> begun;
};

std::string answer_to(Worker& worker, Tasks& tasks, const std::string& line);

/// Returns when its thread runs.
void begin(const Worker& worker, Tasks& tasks, const std::string& key, const std::string& line) {
  const auto begun = std::make_shared<std::promise<void>>();
  tasks.begun[key] =
      std::async(std::launch::async, [worker = worker, &tasks, begun, line]() mutable {
        begun->set_value();
        return answer_to(worker, tasks, line);
      });
  begun->get_future().wait();
}

/// What concerns the link between workers; nullopt for other commands.
std::optional<std::string> run_link(Worker& worker, Tasks& tasks, const std::string& command,
                                    std::istringstream& words) {
  std::string one;
  if (command == "flood") {
    words >> one;
    tasks.flood = std::make_unique<testapp::Flood>(worker, one);
    return "";
  }
  if (command == "flooded") return std::to_string(tasks.flood->right());
  if (command == "calm") return tasks.flood->stop();
  if (command == "prefetch") {
    int count = 0;
    words >> one >> count >> tasks.prefetched.size;
    for (int i = 0; i < count; ++i) {
      tasks.prefetched.results.push_back(
          worker.peer(one).async<&testapp::gated>(tasks.prefetched.size, i));
    }
    return "";
  }
  if (command == "collect") return tasks.prefetched.collect();
  testapp::State& state = testapp::state_of(worker);
  if (command == "stalled") {
    const std::lock_guard<std::mutex> lock(state.mutex);
    return std::to_string(state.stalled.size());
  }
  if (command == "release") {
    testapp::release_at(worker);
    return "";
  }
  if (command == "drop") {
    words >> one;
    state.kept.erase(one);
    return "";
  }
  if (command == "counter") {
    words >> one;
    return std::to_string(worker.counters()[one]);
  }
  return std::nullopt;
}

std::string text_of_state(const Worker& worker) {
  const std::string runs = worker.is_running() ? ", runs" : ", does not run";
  switch (worker.membership_state()) {
    case sinew::MembershipState::kJoining:
      return "joining" + runs;
    case sinew::MembershipState::kMember:
      return "member" + runs;
    case sinew::MembershipState::kSuspected:
      return "suspected" + runs;
    case sinew::MembershipState::kEvicted:
      return "evicted" + runs;
    case sinew::MembershipState::kLeft:
      return "left" + runs;
  }
  return "unknown";
}

std::string text_of_view(const Worker& worker) {
  std::string text;
  for (const sinew::WorkerInfo& member : worker.workers()) {
    absl::StrAppend(&text, text.empty() ? "" : " ", member.name, member.rank, "#",
                    absl::Hex(member.incarnation.value));
  }
  return absl::StrCat(text, ", ", sinew::WorkerAccess::core(worker)->coordinator().name);
}

/// A gather that fails since etcd does not answer is none: who tries again meets those who wait.
void meet(const Worker& worker, std::chrono::nanoseconds timeout) {
  const auto until = std::chrono::steady_clock::now() + timeout;
  while (true) {
    try {
      const std::chrono::nanoseconds left = until - std::chrono::steady_clock::now();
      return worker.barrier(std::max<std::chrono::nanoseconds>(left, std::chrono::milliseconds(1)));
    } catch (const sinew::RpcError& error) {
      const bool is_away = error.code() == absl::StatusCode::kUnavailable &&
                           absl::StartsWith(error.message(), "etcd at ");
      if (!is_away || std::chrono::steady_clock::now() > until) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

/// What concerns who is in the job; nullopt for other commands.
std::optional<std::string> run_membership(Worker& worker, const std::string& command,
                                          std::istringstream& words) {
  if (command == "members") {
    std::string names;
    for (const sinew::WorkerInfo& member : worker.workers())
      names += (names.empty() ? "" : " ") + member.name;
    return names;
  }
  if (command == "view") return text_of_view(worker);
  if (command == "state") return text_of_state(worker);
  if (command == "barrier") {
    std::string timeout;
    words >> timeout;
    std::vector<std::string> names;
    for (std::string name; words >> name;) names.push_back(name);
    worker.barrier(names, milliseconds(timeout));
    return "";
  }
  if (command == "meet") {
    std::string timeout;
    words >> timeout;
    meet(worker, milliseconds(timeout));
    return "";
  }
  return std::nullopt;
}

/// A child that keeps all sockets of this process open until it is killed, or for some minutes.
pid_t fork_idler() {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::alarm(300);
  while (true) ::pause();
}

std::string run(Worker& worker, Tasks& tasks, std::istringstream& words) {
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
  if (const auto answer = run_link(worker, tasks, command, words)) return *answer;
  if (const auto answer = run_membership(worker, command, words)) return *answer;
  std::string one;
  std::string two;
  words >> one >> two;
  if (command == "stall") return std::to_string(worker.peer(one).call<&testapp::stall>());
  if (command == "doze") {
    return std::to_string(worker.peer(one).call<&testapp::doze>(std::stoi(two)));
  }
  if (command == "add") return std::to_string(worker.peer(one).call<&testapp::add>(1, 2));
  if (command == "use")
    return std::to_string(testapp::add_to(testapp::state_of(worker).kept.at(one), 1));
  if (command == "hold") {
    const auto counter = worker.peer(one).remote<testapp::Counter>(1);
    counter.created().wait();
    testapp::state_of(worker).kept[two] = counter;
    return "";
  }
  if (command == "watch") {
    tasks.events = std::make_unique<Events>(worker);
    return "";
  }
  if (command == "events") {
    const std::lock_guard<std::mutex> lock(tasks.events->mutex);
    return tasks.events->text.str();
  }
  if (command == "reason") {
    const std::lock_guard<std::mutex> lock(tasks.events->mutex);
    return tasks.events->reason;
  }
  if (command == "rejoin") {
    worker = worker.rejoin();
    return worker.address();
  }
  if (command == "rejoined") {
    const std::lock_guard<std::mutex> lock(rejoined().mutex);
    if (!rejoined().worker.valid()) return "no";
    worker = std::exchange(rejoined().worker, Worker());
    return "yes";
  }
  if (command == "exit") std::exit(std::stoi(one));
  if (command == "fork") return std::to_string(fork_idler());
  if (command == "shutdown") {
    sinew::ShutdownOptions how;
    how.graceful = one == "graceful";
    if (!two.empty()) how.timeout = milliseconds(two);
    worker.shutdown(how);
    return "";
  }
  if (command == "serve") {
    const bool is_over = worker.serve_until_done() == sinew::ServedUntil::kJobIsOver;
    return is_over ? "job over" : "asked";
  }
  throw std::invalid_argument("unknown command '" + command + "'");
}

std::string answer_to(Worker& worker, Tasks& tasks, const std::string& line) {
  std::istringstream words(line);
  std::string answer;
  try {
    answer = "ok " + run(worker, tasks, words);
  } catch (const sinew::RpcError& error) {
    answer = "error " + absl::StatusCodeToString(error.code()) + " " + error.message();
  } catch (const std::exception& error) {
    answer = std::string("error UNKNOWN ") + error.what();
  }
  for (char& c : answer) c = c == '\n' ? ' ' : c;
  return answer;
}

/// What the main thread is told: it also begins commands on other threads.
std::string answer_with_threads(Worker& worker, Tasks& tasks, const std::string& line) {
  std::istringstream words(line);
  std::string command;
  std::string key;
  words >> command >> key;
  if (command == "begin") {
    std::string rest;
    std::getline(words >> std::ws, rest);
    begin(worker, tasks, key, rest);
    return "ok ";
  }
  if (command == "end" && tasks.begun.count(key) > 0) return tasks.begun[key].get();
  return answer_to(worker, tasks, line);
}

}  // namespace

int main() {
  // A test that dies takes its processes along, also those that are stopped.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  Worker worker;
  Tasks tasks;
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << answer_with_threads(worker, tasks, line) << std::endl;
  }
  tasks = Tasks();
  if (worker.valid()) worker.shutdown({false, std::chrono::seconds(60), false});
}
