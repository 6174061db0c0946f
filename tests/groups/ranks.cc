#include "sinew/tests/groups/ranks.h"

#include <exception>
#include <thread>

#include "gtest/gtest.h"
#include "sinew/rpc/base/error.h"

namespace sinew::testing {

void run_ranks(int size, const std::function<void(int rank)>& f) {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        f(rank);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error != nullptr) std::rethrow_exception(error);
  }
}

RpcError error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const RpcError& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return RpcError(ErrorCode::kOk, "");
}

GroupOptions Ranks::options(int rank) const {
  GroupOptions options;
  options.store = store_;
  options.rank = rank;
  options.world_size = size_;
  options.backend = "gloo";
  options.timeout = std::chrono::seconds(60);
  return options;
}

void Ranks::run(const std::function<void(GroupOptions& options)>& change,
                const std::function<void(const ProcessGroup& group)>& f) const {
  run_ranks(size_, [&](int rank) {
    GroupOptions options = this->options(rank);
    change(options);
    const ProcessGroup group = init_process_group(options);
    f(group);
    group.destroy();
  });
}

}  // namespace sinew::testing
