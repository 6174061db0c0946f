#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "c10/core/Stream.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::testing {

/// The order of what fake devices do, by the rules of streams: work is behind what came before it
/// on its stream, and behind the events that its stream was told to wait for. Each stream has a
/// vector clock; what reads memory without being behind the work that wrote it is a race, though
/// everything on fake devices is done at once. Thread-safe.
class FakeStreams {
 public:
  static FakeStreams& of_process();

  void allocated(const void* memory, std::size_t size_bytes);
  void freed(const void* memory);

  /// `memory` is anywhere in a block; what is in no block is ignored.
  void on_read(const void* memory, c10::Stream stream);
  void on_write(const void* memory, c10::Stream stream);
  /// Written, and the host has waited for that: ready for all streams.
  void on_written_for_all(const void* memory);

  /// Records an event; a null one is made first.
  void* record(void* event, c10::Stream stream);
  void block(void* event, c10::Stream stream);
  void destroy(void* event);

  /// One line for each race since the last call.
  std::vector<std::string> take_races();
  std::size_t events() const;

 private:
  using StreamKey = std::pair<int, std::int64_t>;
  using Time = std::map<StreamKey, std::int64_t>;
  struct Block {
    std::size_t size_bytes = 0;
    // The work that wrote it last; 0: none, or all may use it.
    StreamKey writer;
    std::int64_t written_at = 0;
  };

  static StreamKey key_of(c10::Stream stream) { return {stream.device_index(), stream.id()}; }
  static std::string text_of(StreamKey stream);
  Block* find_locked(const void* memory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable internal::Mutex mutex_;
  std::map<std::uintptr_t, Block> blocks_ ABSL_GUARDED_BY(mutex_);
  std::map<StreamKey, Time> streams_ ABSL_GUARDED_BY(mutex_);
  std::map<void*, Time> events_ ABSL_GUARDED_BY(mutex_);
  std::uintptr_t next_event_ ABSL_GUARDED_BY(mutex_) = 1;
  std::vector<std::string> races_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::testing
