#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "c10/core/Event.h"
#include "sinew/rpc/base/future.h"
#include "sinew/tests/support/fake_device.h"

namespace sinew::testing {

constexpr int kSideStream = 7;

inline c10::Stream fake_stream(int device, int stream) {
  return c10::Stream(c10::Stream::UNSAFE, fake_device(device), stream);
}

/// Threads that work on the side stream of a fake device; a test joins them.
class SideThreads {
 public:
  static SideThreads& of_process() {
    static SideThreads threads;
    return threads;
  }

  /// `work` comes after what is on the device's default stream.
  void run(int device, std::function<void()> work) {
    auto before = std::make_shared<c10::Event>(c10::kPrivateUse1);
    before->record(fake_stream(device, 0));
    const std::lock_guard<std::mutex> lock(mutex_);
    threads_.emplace_back([device, before, work = std::move(work)] {
      set_fake_stream(device, kSideStream);
      before->block(fake_stream(device, kSideStream));
      work();
    });
  }

  void join() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  std::mutex mutex_;
  std::vector<std::thread> threads_;
};

/// What `make` returns, made by one of the SideThreads.
template <class Make>
auto on_side(int device, Make make) {
  using Value = std::invoke_result_t<Make>;
  const Promise<Value> promise;
  SideThreads::of_process().run(device, [promise, make = std::move(make)] {
    try {
      if constexpr (std::is_void_v<Value>) {
        make();
        promise.set_value();
      } else {
        promise.set_value(make());
      }
    } catch (...) {
      promise.set_error(std::current_exception());
    }
  });
  return promise.future();
}

}  // namespace sinew::testing
