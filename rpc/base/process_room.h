#pragma once

#include <cstddef>
#include <functional>
#include <thread>

#include "absl/status/status.h"

namespace sinew::internal {

// For those who are about to use a library that ends the process, or does not go on, where it
// cannot start a thread or open a file.

/// OK if the process could start so many threads a moment ago, which have ended again.
/// kResourceExhausted otherwise: the text says how many it got, and what limits it. Takes
/// some 20 us a thread.
absl::Status check_room_for_threads(std::size_t count);

/// The same of file descriptors.
absl::Status check_room_for_files(std::size_t count);

/// kResourceExhausted, with the same text about one thread.
absl::Status no_thread_started();

/// Throws that as an RpcError where std::thread's constructor throws
/// std::system_error.
std::thread start_thread(std::function<void()> body);

}  // namespace sinew::internal
