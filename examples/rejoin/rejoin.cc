// An actor that was stopped for longer than its lease is out of the job. It comes back by itself as
// a new worker, and makes again what it held.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <iostream>
#include <mutex>
#include <string>
#include <thread>

#include "sinew/sinew.h"

namespace app {
/// At the learner, for as long as the actor that made it is in the job.
struct Score {
  explicit Score(std::int64_t points) : total(points) {}
  std::int64_t add(std::int64_t points) { return total += points; }
  std::atomic<std::int64_t> total;
};
}  // namespace app
SINEW_SERVICE(app::Score, (std::int64_t), add);

namespace {

using namespace std::chrono_literals;

/// The worker that is in the job at present.
class Current {
 public:
  void set(const sinew::Worker& worker) {
    const std::lock_guard<std::mutex> lock(mutex_);
    worker_ = worker;
    changed_.notify_all();
  }
  /// Waits until `worker` is another one than before; false if that takes a minute.
  bool await_next(sinew::Worker& worker) {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto is_next = [&] { return worker_.valid() && !(worker_ == worker); };
    if (!changed_.wait_for(lock, 1min, is_next)) return false;
    worker = worker_;
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  sinew::Worker worker_;
};

sinew::WorkerOptions options_of(const std::string& name) {
  sinew::WorkerOptions options;  // the meeting place comes from MASTER_ADDR and MASTER_PORT
  options.name = name;
  options.methods = sinew::serve<app::Score>();
  options.lease = 3s;  // so that one need not wait for long
  return options;
}

void learn() {
  sinew::WorkerOptions options = options_of("learner");
  options.rank = 0;
  const sinew::Worker worker = sinew::init_rpc(options);
  sinew::Promise<bool> over(nullptr);
  const auto watch = worker.on_member([over](const sinew::MemberEvent& event) {
    std::cout << "learner: " << event.worker.name << " " << event.kind << std::endl;
    if (event.kind == sinew::MemberEvent::Kind::kLeft) over.try_set_value(true);
  });
  over.future().wait();
  worker.shutdown();
}

void play(std::int64_t points) {
  Current current;
  sinew::WorkerOptions options = options_of("actor");
  options.on_rejoined = [&current](const sinew::Worker& next) { current.set(next); };
  sinew::Worker worker = sinew::init_rpc(options);
  std::int64_t total = 0;
  while (total < points) {
    try {
      // All that comes from the worker lives in here: it goes with it.
      const auto score = worker.remote<app::Score>("learner", total);
      while (total < points) {
        total = score.call<&app::Score::add>(1);
        std::cout << "actor: " << total << std::endl;
        std::this_thread::sleep_for(100ms);
      }
    } catch (const sinew::RpcError& error) {
      // kAborted: it is out of the job. kUnavailable: the learner does not answer, perhaps because
      // this worker is out, which it then learns within seconds.
      std::cout << "actor: " << error.what() << std::endl;
      const bool may_be_out = error.code() == sinew::ErrorCode::kAborted ||
                              error.code() == sinew::ErrorCode::kUnavailable;
      if (!may_be_out || !current.await_next(worker)) throw;
      std::cout << "actor: is back" << std::endl;
    }
  }
  worker.shutdown();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string part = argc > 1 ? argv[1] : "";
    if (part == "learner") {
      learn();
    } else if (part == "actor") {
      play(argc > 2 ? std::stoll(argv[2]) : 300);
    } else {
      std::cerr << "usage: rejoin learner | actor [POINTS]" << std::endl;
      return 2;
    }
  } catch (const std::exception& error) {
    std::cerr << "rejoin: " << error.what() << std::endl;
    return 3;
  }
  return 0;
}
