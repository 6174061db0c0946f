// A worker in a process that is ended, forked or limited: see life_test.cc. Does what its standard
// input says, a line at a time, and answers each with one line: "ok", or "error", the code and the
// text.
//
//   limit files|threads N                the process gets no more than that; threads: as a user
//                                        of its own, who has this process only
//   hold MIB                             so much memory of its own, until the end
//   start NAME INIT                      starts a worker
//   add PEER                             calls testapp::add there
//   call PEER N                          N threads call there without a pause, until the end
//   exit main|thread|static CODE         ends the process; static: an object whose destructor
//                                        waits for a thread that calls is there too
//   exit again CODE                      an object whose destructor shuts the worker down and
//                                        starts another one is there too
//   exit restless|late CODE              shuts the worker down, and ends the process while a
//                                        thread starts workers one after the other; late: begins
//                                        to when what belongs to libraries has been destroyed
//   return CODE                          from main()
//   fork PEER CODE                       a forked child tries all that there is to try, and ends

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "ATen/ops/full.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "sinew/tests/process/test_methods.h"

namespace testlife {

/// Ends the process of the worker that is called.
inline int leave(int code) { std::exit(code); }

/// Static, and used by methods: its destructor leaves what ends the process if it is used then.
class Names {
 public:
  ~Names() { names_ = nullptr; }
  std::size_t note(const std::string& name) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (names_ == nullptr) std::abort();
    (*names_)[name] += 1;
    return names_->size();
  }

 private:
  std::mutex mutex_;
  std::unique_ptr<std::map<std::string, int>> names_ =
      std::make_unique<std::map<std::string, int>>();
};
Names names;

inline int note(const std::string& name) { return static_cast<int>(names.note(name)); }

/// Computes with as many threads as LibTorch takes, and returns how many these are.
inline int compute(int rounds) {
  at::Tensor sum = at::zeros({1 << 20});
  for (int i = 0; i < rounds; ++i) sum.add_(at::ones({1 << 20}));
  return at::get_num_threads();
}

}  // namespace testlife

SINEW_METHOD(testlife::leave, testlife::note, testlife::compute);

namespace {

using sinew::Worker;

/// Has another worker in the place of its own when it is destroyed.
class LateStarter {
 public:
  ~LateStarter() {
    if (!worker_.valid()) return;
    worker_.shutdown({false, std::chrono::seconds(60), false});
    const Worker next = sinew::init_rpc(options_);
    if (next.peer(next.name()).call<&testapp::add>(1, 2) != 3) std::abort();
    next.shutdown({false, std::chrono::seconds(60), false});
  }
  void start(const Worker& worker, const sinew::WorkerOptions& options) {
    worker_ = worker;
    options_ = options;
  }

 private:
  Worker worker_;
  sinew::WorkerOptions options_;
};
LateStarter late_starter;

/// A thread that calls a peer for as long as this lives, as programs have them in static objects.
class Caller {
 public:
  ~Caller() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    if (worker_.valid()) worker_.shutdown({false, std::chrono::seconds(60), false});
  }
  void start(const Worker& worker, const std::string& peer) {
    worker_ = worker;
    thread_ = std::thread([this, peer] {
      while (!stop_) worker_.peer(peer).call<&testapp::add>(1, 2);
    });
  }

 private:
  Worker worker_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};
Caller caller;

std::atomic<int> calls_made{0};

void call_without_end(const Worker& worker, const std::string& peer, int size) {
  while (true) {
    try {
      worker.peer(peer).call<&testapp::echo_tensor>(at::full({size}, 1.5).add(1));
      testlife::note(peer);
      ++calls_made;
    } catch (const sinew::RpcError&) {  // The next one shows.
    }
  }
}

void limit(const std::string& what, rlim_t most) {
  const rlimit limits{most, most};
  if (what == "files") {
    rlimit files{};
    if (::getrlimit(RLIMIT_NOFILE, &files) != 0) throw std::runtime_error("getrlimit");
    // The hard limit stays, so that this one can be raised again.
    files.rlim_cur = most;
    if (::setrlimit(RLIMIT_NOFILE, &files) != 0) throw std::runtime_error("setrlimit");
    return;
  }
  // Limits of threads are a user's, and no limits for root.
  const auto user = static_cast<uid_t>(1000000 + ::getpid());
  if (::setresgid(user, user, user) != 0 || ::setrlimit(RLIMIT_NPROC, &limits) != 0 ||
      ::setresuid(user, user, user) != 0) {
    throw std::runtime_error("cannot become another user");
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
}

std::atomic<bool> waits_for_libraries{false};
std::atomic<bool> are_libraries_destroyed{false};

// The last of all that exit() runs of this program, when its libraries' objects are gone.
__attribute__((destructor)) void end_of_libraries() {
  are_libraries_destroyed = true;
  if (!waits_for_libraries) return;
  // For a worker to start.
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
}

/// Starts workers and shuts them down, in a thread of its own, until the process is gone.
void start_workers_without_end(const sinew::WorkerOptions& options) {
  std::thread([options] {
    while (waits_for_libraries && !are_libraries_destroyed) std::this_thread::yield();
    while (true) {
      const Worker worker = sinew::init_rpc(options);
      worker.peer(worker.name()).call<&testapp::add>(1, 2);
      worker.shutdown({false, std::chrono::seconds(20), false});
    }
  }).detach();
}

std::string code_and_text(const std::function<void()>& use) {
  try {
    use();
  } catch (const sinew::RpcError& error) {
    return absl::StatusCodeToString(error.code()) + " " + error.message();
  } catch (const std::exception& error) {
    return std::string("UNKNOWN ") + error.what();
  }
  return "";
}

/// What a forked child has of its parent's.
struct Inherited {
  Worker worker;
  sinew::Peer peer;
  sinew::Future<int> pending;
  sinew::RRef<testapp::Counter> counter;
  sinew::RRef<int> owned;
  std::unique_ptr<sinew::autograd::Context> context;
};

/// What is wrong with what the child gets; empty if nothing is.
std::string use_everything(Inherited& its) {
  sinew::CallOptions options;
  options.timeout = std::chrono::seconds(3);
  const sinew::Peer patient = its.peer.with(options);
  const std::vector<std::pair<std::string, std::function<void()>>> uses = {
      {"call", [&] { patient.call<&testapp::add>(1, 2); }},
      {"call by name", [&] { its.worker.peer(its.peer.name()).call<&testapp::add>(1, 2); }},
      {"wait", [&] { its.pending.wait(); }},
      {"call of a method", [&] { its.counter.call<&testapp::Counter::get>(); }},
      {"fetch", [&] { its.owned.to_here(); }},
      {"remote", [&] { patient.remote<testapp::Counter>(1); }},
      {"make_rref", [&] { sinew::make_rref(its.worker, 1); }},
      {"context",
       [&] { const sinew::autograd::ContextScope scope(its.worker, its.context->id()); }},
      {"barrier", [&] { its.worker.barrier(std::chrono::seconds(3)); }},
      {"workers", [&] { its.worker.workers(); }},
      {"counters", [&] { its.worker.counters(); }},
      {"shutdown", [&] { its.worker.shutdown(); }},
      {"init_rpc", [&] { sinew::init_rpc("another", testapp::methods()); }},
  };
  for (const auto& [name, use] : uses) {
    const std::string got = code_and_text(use);
    if (got.rfind("FAILED_PRECONDITION", 0) != 0 || got.find("fork()") == std::string::npos) {
      return name + ": " + got;
    }
  }
  return its.peer.alive() || its.worker.is_running() ? "the worker seems to live" : "";
}

std::string fork_child(Worker& worker, const std::string& peer, int code) {
  Inherited its{worker,
                worker.peer(peer),
                worker.peer(peer).async<&testapp::stall>(),
                worker.peer(peer).remote<testapp::Counter>(7),
                sinew::make_rref(worker, 4),
                std::make_unique<sinew::autograd::Context>(worker)};
  its.counter.created().wait();
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error("pipe");
  const pid_t child = ::fork();
  if (child == 0) {
    // Whatever hangs ends then, as an error of the test.
    ::alarm(20);
    const std::string wrong = use_everything(its);
    const bool written =
        ::write(ends[1], wrong.data(), wrong.size()) == static_cast<ssize_t>(wrong.size());
    its = Inherited();
    worker = Worker();
    std::exit(written ? code : 1);
  }
  ::close(ends[1]);
  std::string wrong;
  char bytes[4096];
  for (ssize_t size = 0; (size = ::read(ends[0], bytes, sizeof bytes)) > 0;) {
    wrong.append(bytes, static_cast<std::size_t>(size));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  // The parent goes on with what was under way.
  worker.peer(peer).call<&testapp::release>();
  const bool goes_on = its.pending.wait() == 1 && its.counter.call<&testapp::Counter::get>() == 7 &&
                       its.owned.to_here() == 4;
  return absl::StrCat(wrong, WIFSIGNALED(status) ? " signal " : " status ",
                      WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
                      goes_on ? " parent goes on" : " parent does not go on");
}

/// What a child gets that starts a worker, after its parent's has been shut down.
std::string fork_late(Worker& worker) {
  worker.shutdown({false, std::chrono::seconds(20), false});
  worker = Worker();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    const std::string got = code_and_text([] { sinew::init_rpc("another", testapp::methods()); });
    const bool refused =
        got.rfind("FAILED_PRECONDITION", 0) == 0 && got.find("fork()") != std::string::npos;
    std::exit(refused ? 3 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return absl::StrCat(WIFSIGNALED(status) ? "signal " : "status ",
                      WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

std::string run(Worker& worker, std::istringstream& words) {
  std::string command;
  words >> command;
  if (command == "limit") {
    std::string what;
    rlim_t most = 0;
    words >> what >> most;
    limit(what, most);
    return "";
  }
  if (command == "hold") {
    std::size_t mib = 0;
    words >> mib;
    static const std::string held(mib << 20, 'h');
    return "";
  }
  std::string one;
  words >> one;
  static sinew::WorkerOptions options;
  if (command == "start") {
    options.name = one;
    options.methods = testapp::methods();
    options.methods.add<&testlife::leave>().add<&testlife::note>().add<&testlife::compute>();
    words >> options.init_method;
    options.join_timeout = std::chrono::seconds(120);
    worker = sinew::init_rpc(options);
    return worker.address();
  }
  if (command == "add") return std::to_string(worker.peer(one).call<&testapp::add>(1, 2));
  int number = 0;
  words >> number;
  if (command == "fork_late") return fork_late(worker);
  if (command == "fork") return fork_child(worker, one, number);
  if (command == "call") {
    for (int i = 0; i < number; ++i) {
      const int size = i % 2 == 0 ? 10 : 300000;
      std::thread([=] { call_without_end(worker, one, size); }).detach();
    }
    while (calls_made < 20 * number) std::this_thread::yield();
    return "";
  }
  if (command == "exit" && one == "static") caller.start(worker, worker.workers().front().name);
  if (command == "exit" && one == "again") late_starter.start(worker, options);
  if (command == "exit" && one == "thread") {
    std::thread([number] { std::exit(number); }).detach();
    return "";
  }
  if (command == "exit" && (one == "restless" || one == "late")) {
    worker.shutdown({false, std::chrono::seconds(20), false});
    worker = Worker();
    waits_for_libraries = one == "late";
    start_workers_without_end(options);
    // Not always at the same point of a worker's life.
    std::this_thread::sleep_for(std::chrono::microseconds(::getpid() * 997 % 30000));
  }
  if (command == "exit") std::exit(number);
  throw std::invalid_argument("unknown command '" + command + "'");
}

}  // namespace

int main() {
  // A test that dies takes its processes along.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  Worker worker;
  for (std::string line; std::getline(std::cin, line);) {
    if (line.rfind("return ", 0) == 0) return std::stoi(line.substr(7));
    std::istringstream words(line);
    std::string answer;
    const std::string failed = code_and_text([&] { answer = "ok " + run(worker, words); });
    if (!failed.empty()) answer = "error " + failed;
    for (char& c : answer) c = c == '\n' ? ' ' : c;
    std::cout << answer << std::endl;
  }
  // Somebody else ends the process.
  while (true) ::pause();
}
