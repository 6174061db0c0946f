// A worker of tools/churn: it works all the time, and starts again when it was evicted, as programs
// should. What happens is told on stdout, in lines that begin with "event":
//
//   event joined RANK:NAME:INCARNATION
//   event refused CODE TEXT          it could not join; it tries again
//   event evicted CODE TEXT          what its calls fail with since; it starts again
//   event wrong TEXT                 somebody gave a wrong answer
//   event unexplained CODE TEXT      a call failed as no loss makes it fail
//   event left_late CODE TEXT        what its leaving failed with
//
// It does what its standard input says, a line at a time that begins with a number, and answers
// each with one line: the number, and "ok" or "error".
//
//   view           the members that it sees, each as RANK:NAME:INCARNATION
//   self           itself, and how it stands: RANK:NAME:INCARNATION member
//   tally          what its work has come to: "right=10 UNAVAILABLE=2"
//   calm           stops its work for good, and gives up all references
//   counters       those that are not zero and should be, when nobody works
//   each           calls each other member
//   leave graceful|hard MS     and ends
//
// Arguments: name=, init=, lease_ms=, pause_ms=, and if they are not left to Sinew rank=, world=.

#include <sys/prctl.h>

#include <csignal>
#include <functional>
#include <iostream>
#include <memory>
#include <sstream>

#include "sinew/tests/process/churn_work.h"

namespace {

using sinew::MembershipState;
using sinew::Worker;

struct Settings {
  sinew::WorkerOptions options;
  std::chrono::milliseconds pause{20};
};

Settings parse(int argc, char** argv) {
  Settings settings;
  sinew::WorkerOptions& options = settings.options;
  options.methods = churn::methods();
  options.num_threads = 2;
  const std::map<std::string, std::function<void(const std::string&)>> known = {
      {"name", [&](const std::string& value) { options.name = value; }},
      {"init", [&](const std::string& value) { options.init_method = value; }},
      {"rank", [&](const std::string& value) { options.rank = std::stoi(value); }},
      {"world", [&](const std::string& value) { options.world_size = std::stoi(value); }},
      {"lease_ms",
       [&](const std::string& value) {
         options.lease = std::chrono::milliseconds(std::stol(value));
       }},
      {"pause_ms",
       [&](const std::string& value) {
         settings.pause = std::chrono::milliseconds(std::stol(value));
       }},
  };
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::size_t equals = word.find('=');
    const auto setting = known.find(word.substr(0, equals));
    if (equals == std::string::npos || setting == known.end()) {
      throw std::invalid_argument("unknown argument '" + word + "'");
    }
    setting->second(word.substr(equals + 1));
  }
  return settings;
}

std::string text_of_state(MembershipState state) {
  switch (state) {
    case MembershipState::kJoining:
      return "joining";
    case MembershipState::kMember:
      return "member";
    case MembershipState::kSuspected:
      return "suspected";
    case MembershipState::kEvicted:
      return "evicted";
    case MembershipState::kLeft:
      return "left";
  }
  return "unknown";
}

/// Its workers, one after the other, on a thread of its own.
class Life {
 public:
  explicit Life(Settings settings) : settings_(std::move(settings)), thread_([this] { run(); }) {}

  /// The present one; invalid while it looks for the job.
  Worker worker() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return worker_;
  }
  void calm() {
    const std::lock_guard<std::mutex> lock(mutex_);
    calm_ = true;
    work_.reset();
    churn::memory()->close();
  }
  const churn::Tally& tally() const { return tally_; }

  /// Ends the worker, and the process.
  [[noreturn]] void leave(const sinew::ShutdownOptions& how) {
    std::unique_lock<std::mutex> lock(mutex_);
    leaving_ = true;
    // Whoever only looks for the job has nobody to take leave of.
    if (!worker_.valid()) end();
    work_.reset();
    churn::memory()->close();
    try {
      worker_.shutdown(how);
    } catch (const sinew::RpcError& error) {
      churn::tell(
          absl::StrCat("left_late ", absl::StatusCodeToString(error.code()), " ", error.message()));
    }
    end();
  }

 private:
  [[noreturn]] static void end() {
    std::cout.flush();
    std::exit(0);
  }

  void run() {
    while (true) {
      join();
      while (worker().membership_state() != MembershipState::kEvicted) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      const std::lock_guard<std::mutex> lock(mutex_);
      if (leaving_) return;
      tell_why_it_is_out();
      work_.reset();
      churn::memory()->close();
      worker_.shutdown({false, std::chrono::seconds(20), false});
      worker_ = Worker();
    }
  }

  void join() {
    while (true) {
      try {
        churn::forget();
        Worker worker = sinew::init_rpc(settings_.options);
        const std::lock_guard<std::mutex> lock(mutex_);
        if (leaving_) return;
        worker_ = worker;
        churn::tell("joined " + churn::text_of(worker.info()));
        if (!calm_) {
          work_ = std::make_unique<churn::Work>(worker, settings_.pause, tally_);
        } else {
          churn::memory()->close();
        }
        return;
      } catch (const sinew::RpcError& error) {
        churn::tell(
            absl::StrCat("refused ", absl::StatusCodeToString(error.code()), " ", error.message()));
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
      }
    }
  }

  void tell_why_it_is_out() const {
    try {
      worker_.barrier(std::chrono::seconds(1));
      churn::tell("evicted OK a barrier succeeded");
    } catch (const sinew::RpcError& error) {
      churn::tell(
          absl::StrCat("evicted ", absl::StatusCodeToString(error.code()), " ", error.message()));
    }
  }

  const Settings settings_;
  churn::Tally tally_;
  std::mutex mutex_;
  bool calm_ = false;
  bool leaving_ = false;
  Worker worker_;
  std::unique_ptr<churn::Work> work_;
  std::thread thread_;
};

std::string counters_left(const Worker& worker) {
  sinew::Counters counters = worker.counters();
  std::string text;
  for (const char* name :
       {"rpc.client_active_calls", "rpc.server_active_calls", "rpc.blocked_threads",
        "rpc.queued_tasks", "rref.owned", "rref.forks", "rref.users", "rref.pending_users",
        "rref.pending_children", "autograd.contexts", "autograd.sends", "autograd.recvs",
        "autograd.passes"}) {
    if (counters[name] != 0) absl::StrAppend(&text, " ", name, "=", counters[name]);
  }
  return text;
}

std::string run(Life& life, const std::string& command, std::istringstream& words) {
  if (command == "leave") {
    std::string how;
    long milliseconds = 0;
    words >> how >> milliseconds;
    life.leave({how == "graceful", std::chrono::milliseconds(milliseconds), false});
  }
  if (command == "tally") return life.tally().text();
  if (command == "calm") {
    life.calm();
    return "";
  }
  const Worker worker = life.worker();
  if (!worker.valid()) throw std::runtime_error("joining");
  if (command == "view") {
    std::string text;
    for (const sinew::WorkerInfo& member : worker.workers()) {
      absl::StrAppend(&text, text.empty() ? "" : " ", churn::text_of(member));
    }
    return text;
  }
  if (command == "self") {
    return churn::text_of(worker.info()) + " " + (worker.is_running() ? "" : "not running: ") +
           text_of_state(worker.membership_state());
  }
  if (command == "counters") return counters_left(worker);
  if (command == "each") return churn::call_each(worker);
  throw std::invalid_argument("unknown command '" + command + "'");
}

}  // namespace

int main(int argc, char** argv) {
  // Who drives it takes its processes along when it dies, also those that are stopped.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    Life& life = *new Life(parse(argc, argv));
    for (std::string line; std::getline(std::cin, line);) {
      std::istringstream words(line);
      std::string number;
      std::string command;
      words >> number >> command;
      std::string answer;
      try {
        answer = number + " ok " + run(life, command, words);
      } catch (const std::exception& error) {
        answer = number + " error " + error.what();
      }
      for (char& c : answer) c = c == '\n' ? ' ' : c;
      std::cout << (answer + "\n") << std::flush;
    }
  } catch (const std::exception& error) {
    std::cerr << "churn_worker: " << error.what() << std::endl;
    std::_Exit(2);
  }
  // Nobody drives it any more.
  std::_Exit(0);
}
