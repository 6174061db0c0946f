#include "sinew/tests/process/churn_life.h"

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/tests/process/churn_methods.h"
#include "sinew/tests/process/churn_work.h"

namespace churn {
namespace {

using sinew::MembershipState;
using sinew::Worker;

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

[[noreturn]] void end() {
  std::cout.flush();
  std::exit(0);
}

}  // namespace

Life::Life(LifeOptions options) : options_(std::move(options)), thread_([this] { live(); }) {}

std::string Life::answer(std::istringstream& words) {
  std::string command;
  words >> command;
  std::string answer;
  try {
    answer = "ok " + run(command, words);
  } catch (const std::exception& error) {
    answer = absl::StrCat("error ", error.what());
  }
  for (char& c : answer) c = c == '\n' ? ' ' : c;
  return answer;
}

std::string Life::run(const std::string& command, std::istringstream& words) {
  if (command == "leave") {
    std::string how;
    long milliseconds = 0;
    words >> how >> milliseconds;
    leave({how == "graceful", std::chrono::milliseconds(milliseconds), false});
  }
  if (command == "tally") return options_.tally->text();
  if (command == "calm") {
    calm();
    return "";
  }
  const Worker worker = this->worker();
  if (!worker.valid()) throw std::runtime_error("joining");
  if (command == "view") {
    std::string text;
    for (const sinew::WorkerInfo& member : worker.workers()) {
      absl::StrAppend(&text, text.empty() ? "" : " ", text_of(member));
    }
    return text;
  }
  if (command == "self") {
    return absl::StrCat(text_of(worker.info()), " ", worker.is_running() ? "" : "not running: ",
                        text_of_state(worker.membership_state()));
  }
  if (command == "counters") return counters_left(worker);
  if (command == "each") return call_each(worker);
  throw std::invalid_argument("unknown command '" + command + "'");
}

Worker Life::worker() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return worker_;
}

void Life::calm() {
  const std::lock_guard<std::mutex> lock(mutex_);
  calm_ = true;
  if (work_ != nullptr) work_->conclude();
  work_.reset();
  options_.give_up();
}

void Life::leave(const sinew::ShutdownOptions& how) {
  std::unique_lock<std::mutex> lock(mutex_);
  leaving_ = true;
  // Whoever only looks for the job has nobody to take leave of.
  if (!worker_.valid()) end();
  work_.reset();
  options_.give_up();
  try {
    worker_.shutdown(how);
  } catch (const sinew::RpcError& error) {
    tell(absl::StrCat("left_late ", absl::StatusCodeToString(error.code()), " ", error.message()));
  }
  end();
}

void Life::live() {
  while (true) {
    join();
    while (worker().membership_state() != MembershipState::kEvicted) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    if (leaving_) return;
    tell_why_it_is_out();
    work_.reset();
    options_.give_up();
    worker_.shutdown({false, std::chrono::seconds(20), false});
    worker_ = Worker();
  }
}

void Life::join() {
  while (true) {
    try {
      options_.begin_anew();
      Worker worker = sinew::init_rpc(options_.worker);
      const std::lock_guard<std::mutex> lock(mutex_);
      if (leaving_) return;
      worker_ = worker;
      tell("joined " + text_of(worker.info()));
      if (!calm_) {
        work_ = options_.make_work(worker);
      } else {
        options_.give_up();
      }
      return;
    } catch (const sinew::RpcError& error) {
      tell(absl::StrCat("refused ", absl::StatusCodeToString(error.code()), " ", error.message()));
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
  }
}

void Life::tell_why_it_is_out() const {
  try {
    worker_.barrier(std::chrono::seconds(1));
    tell("evicted OK a barrier succeeded");
  } catch (const sinew::RpcError& error) {
    tell(absl::StrCat("evicted ", absl::StatusCodeToString(error.code()), " ", error.message()));
  }
}

}  // namespace churn
