#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <type_traits>
#include <utility>

#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/future.h"
#include "sinew/streams/internal/stream_codec.h"

namespace sinew {

template <class T>
class Stream;

/// What a writer may have written that was not sent: from either bound on it waits. One item always
/// finds room.
struct StreamOptions {
  std::uint64_t buffered_items = 1024;
  std::uint64_t buffered_bytes = std::uint64_t{4} << 20;
};

namespace internal {

template <class T>
inline constexpr bool is_stream_v<Stream<T>> = true;

template <class T>
constexpr bool check_stream_item() {
  static_assert(!contains_stream_v<T>,
                "Sinew: the items of this Stream are streams, or have one in them: a stream is no "
                "value, so return each from a method of its own");
  static_assert(contains_stream_v<T> || is_wire_type_v<T>,
                "Sinew: the items of this Stream have a type that cannot travel: if it is a struct "
                "of yours, list its fields with SINEW_STRUCT before its first use; otherwise "
                "specialise sinew::Codec for it");
  return !contains_stream_v<T> && is_wire_type_v<T>;
}

/// For the layers of Sinew.
struct StreamAccess;

}  // namespace internal

/// The writing end. Moved, not copied; several threads may write. To drop it without finish() or
/// fail() ends the stream with kAborted.
template <class T>
class StreamWriter {
  static_assert(internal::check_stream_item<T>() || true, "said there");

 public:
  StreamWriter() = default;
  StreamWriter(StreamWriter&& other) noexcept = default;
  StreamWriter& operator=(StreamWriter&& other) noexcept {
    if (this != &other) {
      abandon();
      source_ = std::move(other.source_);
    }
    return *this;
  }
  ~StreamWriter() { abandon(); }

  /// Writes an item, then waits until there is room for another one: what the reader does not read
  /// holds the writer up. Throws kCancelled once the reader has stopped, kDeadlineExceeded when the
  /// time of the call is over, kUnavailable when the reader's worker is lost. Blocks; within a
  /// handler the thread's place in the pool is taken by another one meanwhile.
  void write(T item) {
    if (!source().write(std::move(item))) source().room().wait();
  }
  /// As write(), without blocking: the item is written when this returns, and the future completes
  /// when there is room. Who does not wait for that has all that it writes in memory.
  Future<void> write_async(T item) {
    try {
      if (source().write(std::move(item))) return make_ready_future();
    } catch (...) {
      return make_failed_future<void>(std::current_exception());
    }
    return source().room();
  }

  /// Ends the stream behind what was written; the reader gets that first. Nothing if it is over.
  void finish() { end(nullptr); }
  /// Ends it with an error, which the reader gets behind what was written.
  void fail(std::exception_ptr error) { end(std::move(error)); }
  void fail(RpcError error) { fail(std::make_exception_ptr(std::move(error))); }
  /// Whether the stream is not read any more: then write() throws why.
  bool stopped() const { return source().is_stopped(); }

 private:
  friend struct internal::StreamAccess;
  internal::TypedStreamSource<T>& source() const {
    if (source_ == nullptr) internal::throw_no_stream();
    return *source_;
  }
  void end(std::exception_ptr error) { source().finish(std::move(error)); }
  void abandon() {
    if (source_ != nullptr) source_->finish(internal::abandoned_stream());
  }

  std::shared_ptr<internal::TypedStreamSource<T>> source_;
};

}  // namespace sinew
