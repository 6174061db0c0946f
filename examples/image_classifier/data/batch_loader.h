#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "picture_set.h"

namespace image_classifier {

/// Where batches lie.
enum class BatchMemory {
  kPageable,
  /// Copies to a GPU go on beside what else there is to do.
  kPinned,
};

struct LoaderOptions {
  /// Threads that make batches; 0: the one that asks for them.
  int workers = 0;
  /// Batches that each of them may make before anybody asks.
  int ahead = 2;
  BatchMemory memory = BatchMemory::kPageable;
};

/// Makes the batches of an epoch, in order, in threads of its own. A batch is what its pictures and
/// the epoch say, whoever makes it. For one thread at a time.
class BatchLoader {
 public:
  using Chosen = std::vector<std::int64_t>;

  BatchLoader(const PictureSet& set, const LoaderOptions& options);
  /// Waits for the batches that are being made.
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  /// Forgets what is left of the epoch before, and begins to make these batches.
  void start(std::uint64_t epoch, std::vector<Chosen> batches);
  /// The next one. Throws what its pictures threw; std::logic_error behind the last one.
  Batch next();

 private:
  struct Made {
    Batch batch;
    std::exception_ptr error;
  };

  void stop();
  void work();
  Made make(std::size_t number) const;

  const PictureSet& set_;
  const LoaderOptions options_;
  // Constant while threads run.
  std::uint64_t epoch_ = 0;
  std::vector<Chosen> batches_;
  std::vector<std::thread> threads_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Under the mutex: the next to be begun, the next to be handed out, and those in between.
  std::size_t begun_ = 0;
  std::size_t handed_out_ = 0;
  std::map<std::size_t, Made> made_;
  bool is_stopping_ = false;
};

}  // namespace image_classifier
