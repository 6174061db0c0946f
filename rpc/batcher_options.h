#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "sinew/rpc/call_options.h"

namespace sinew {

/// When a Batcher's batches go, and how many calls may wait.
struct BatcherOptions {
  /// Calls of one batch; at least 1. A batch that is full goes at once.
  std::size_t max_batch = 64;
  /// The first call of a batch waits no longer than this for company. Zero: a call goes as soon as
  /// it finds nothing running, so that batches are what came while the last one ran. kNoTimeout:
  /// batches go when they are full or when all are in who are expected, and not before.
  std::chrono::nanoseconds max_wait = std::chrono::milliseconds(2);
  /// Calls that may wait for their batch to begin; at least max_batch. What comes on top fails at
  /// once.
  std::size_t max_queued = 1024;
  /// How many callers there are, each of which makes its next call once it has its last answer:
  /// when so many calls wait, no further one can come, and they go. 0: not known. See
  /// Batcher::set_expected().
  std::size_t expected = 0;
  /// Batches that run at once; at least 1. With more than one, the function that runs them must be
  /// thread-safe.
  std::size_t max_concurrent = 1;
};

/// What a Batcher has done, and does.
struct BatcherStats {
  /// Calls that wait for their batch to begin.
  std::size_t queued = 0;
  /// Batches that run.
  std::size_t running = 0;
  /// Batches that have begun so far, and the calls in them.
  std::uint64_t batches = 0;
  std::uint64_t calls = 0;
  /// Calls that failed since too many waited.
  std::uint64_t rejected = 0;
  /// Calls that left the queue since their caller cancelled them or waits no longer.
  std::uint64_t given_up = 0;
};

}  // namespace sinew
