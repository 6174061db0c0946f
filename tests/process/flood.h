#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "sinew/tests/process/test_methods.h"

namespace testapp {

/// Calls a worker from several threads without a pause, looking it up by its name each time, and
/// checks that every call gets its own answer. Goes on while that worker is away.
class Flood {
 public:
  Flood(sinew::Worker worker, std::string to)
      : worker_(std::move(worker)), to_(std::move(to)), threads_(kThreads) {
    for (int i = 0; i < kThreads; ++i) {
      threads_[static_cast<std::size_t>(i)] = std::thread([this, i] { run(i); });
    }
  }
  ~Flood() { stop(); }
  Flood(const Flood&) = delete;
  Flood& operator=(const Flood&) = delete;

  /// Right answers so far.
  std::int64_t right() const { return right_; }

  /// Stops, and tells in one line how many calls ended how, with the first that ended as none
  /// should.
  std::string stop() {
    stopping_ = true;
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    return "wrong=" + std::to_string(wrong_) + " right=" + std::to_string(right_) +
           " lost=" + std::to_string(lost_) + (first_wrong_.empty() ? "" : ": " + first_wrong_);
  }

 private:
  static constexpr int kThreads = 3;

  void run(int thread) {
    for (std::int64_t number = 0; !stopping_; ++number) {
      const std::string text = worker_.name() + "/" + std::to_string(thread) + "/" +
                               std::to_string(number) + "/" + std::string(number % 50, '.');
      // Methods of differing results, several on their way at a time.
      try {
        const sinew::Peer peer = worker_.peer(to_).with({std::chrono::seconds(25), {}});
        const auto echoed = peer.async<&echo>(text);
        const auto sum = peer.async<&add>(static_cast<int>(number), thread);
        const auto names = peer.async<&worker_names>();
        check([&] { return echoed.wait() == text; }, "echo of " + text);
        check([&] { return sum.wait() == static_cast<int>(number) + thread; }, "sum");
        check([&] { return !names.wait().empty(); }, "names");
      } catch (const sinew::RpcError& error) {
        // It is not in the job just now.
        note(error);
      }
    }
  }

  template <class Call>
  void check(const Call& call, const std::string& what) {
    try {
      if (call()) {
        ++right_;
      } else {
        wrong(what + " got another call's answer");
      }
    } catch (const sinew::RpcError& error) {
      note(error);
    }
  }

  void note(const sinew::RpcError& error) {
    const bool lost = error.code() == sinew::ErrorCode::kUnavailable ||
                      error.code() == sinew::ErrorCode::kNotFound;
    if (!lost) return wrong(error.what());
    ++lost_;
    // Others want to run meanwhile.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  void wrong(const std::string& what) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (wrong_++ == 0) first_wrong_ = what;
  }

  const sinew::Worker worker_;
  const std::string to_;
  std::atomic<bool> stopping_{false};
  std::atomic<std::int64_t> right_{0};
  std::atomic<std::int64_t> lost_{0};
  std::mutex mutex_;
  std::int64_t wrong_ = 0;
  std::string first_wrong_;
  // Last: they use the others.
  std::vector<std::thread> threads_;
};

}  // namespace testapp
