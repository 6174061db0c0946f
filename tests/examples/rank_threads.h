#pragma once

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "sinew/groups/process_group.h"
#include "sinew/groups/store.h"

namespace examples::testing {

/// Does `body` as each rank of a group, in threads of this process, and rethrows what the first of
/// them threw.
inline void as_ranks(int ranks, const std::function<void(const sinew::ProcessGroup&)>& body) {
  const sinew::Store store = sinew::Store::in_memory();
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        sinew::GroupOptions options;
        options.store = store;
        options.rank = rank;
        options.world_size = ranks;
        options.timeout = std::chrono::minutes(2);
        const sinew::ProcessGroup group = sinew::init_process_group(options);
        body(group);
        group.barrier();
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace examples::testing
