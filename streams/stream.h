#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/future.h"
#include "sinew/streams/internal/stream_codec.h"
#include "sinew/streams/stream_writer.h"

/// Streams: a method returns a `Stream<T>`, or takes one as its last parameter, and items go from
/// the writer to the reader while both work. docs/streams.md is about them.
///
///     namespace app {
///     sinew::Stream<std::int64_t> count(std::int64_t n) {
///       return sinew::write_stream<std::int64_t>([n](auto& writer) {
///         for (std::int64_t i = 0; i < n; ++i) writer.write(i);
///       });
///     }
///     double sum(sinew::Stream<double> numbers) {
///       double sum = 0;
///       for (double number : numbers) sum += number;
///       return sum;
///     }
///     }  // namespace app
///     SINEW_METHOD(app::count, app::sum);
///
///     for (std::int64_t i : peer.call<&app::count>(10)) std::cout << i;
///
///     auto [writer, numbers] = sinew::make_stream<double>();
///     auto sum = peer.async<&app::sum>(std::move(numbers));
///     writer.write(0.5);
///     writer.finish();
///     std::cout << sum.wait();
namespace sinew {

/// The reading end: of a stream that a method has returned, or that a method was given. It has one
/// reader, so it is moved, not copied. The stream lasts until its end, at most as long as its call:
/// until the call's deadline, or until that is cancelled. To drop it before its end stops the
/// writer. Thread-safe, as far as it is not moved meanwhile; each item is read once.
///
/// Errors, of next() and the others: the one that the writer has ended it with, kUnavailable when
/// the writer's worker is lost, kDeadlineExceeded, kCancelled. The items that came before are read
/// first, in their order, and none twice. Behind the end, or the error, each read says it again.
template <class T>
class Stream {
  static_assert(internal::check_stream_item<T>() || true, "said there");

 public:
  using value_type = T;

  /// No stream; reading throws kFailedPrecondition.
  Stream() = default;
  Stream(Stream&& other) noexcept = default;
  Stream& operator=(Stream&& other) noexcept {
    if (this != &other) {
      stop();
      reader_ = std::move(other.reader_);
      source_ = std::move(other.source_);
    }
    return *this;
  }
  ~Stream() { stop(); }

  /// Whether it can be read, here. One that was made here is read where it is sent to.
  bool valid() const { return reader_ != nullptr; }

  /// The next item; none at the end. Blocks until it is there.
  std::optional<T> next() { return reader().next(); }
  /// As next(), without blocking. Several may wait: they get items in their order.
  Future<std::optional<T>> next_async() { return reader().next_async(); }

  /// Reads no more: the writer is told. Idempotent.
  void stop() {
    if (reader_ != nullptr) reader_->stop("the stream is not read any more");
    if (source_ != nullptr && !source_->was_sent()) {
      source_->stop(std::make_exception_ptr(
          RpcError(ErrorCode::kCancelled, "the stream is not read: it was not sent")));
    }
  }

  class iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using pointer = T*;
    using reference = T&;

    iterator() = default;
    T& operator*() const { return *item_; }
    T* operator->() const { return &*item_; }
    iterator& operator++() {
      item_ = reader_->next();
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const iterator& a, const iterator& b) {
      return a.item_.has_value() == b.item_.has_value();
    }
    friend bool operator!=(const iterator& a, const iterator& b) { return !(a == b); }

   private:
    friend class Stream;
    explicit iterator(internal::TypedStreamReader<T>& reader)
        : reader_(&reader), item_(reader.next()) {}

    internal::TypedStreamReader<T>* reader_ = nullptr;
    mutable std::optional<T> item_;
  };
  /// `for (T& item : stream)` reads to the end. Blocks, and throws, as next().
  iterator begin() { return iterator(reader()); }
  iterator end() { return iterator(); }

 private:
  friend struct internal::StreamAccess;
  internal::TypedStreamReader<T>& reader() const {
    if (reader_ == nullptr) internal::throw_no_stream();
    return *reader_;
  }

  std::shared_ptr<internal::TypedStreamReader<T>> reader_;
  // Until it is sent, and of what was moved from into a message.
  std::shared_ptr<internal::TypedStreamSource<T>> source_;
};

/// Both ends of a stream that is to be sent: `auto [writer, stream] = sinew::make_stream<T>();`.
/// The stream is the last argument of one call, or the result of a method. What is written before
/// it is sent waits in the buffer.
template <class T>
struct StreamPair {
  StreamWriter<T> writer;
  Stream<T> stream;
};

namespace internal {

struct StreamAccess {
  template <class T>
  static StreamPair<T> make(const StreamOptions& options) {
    auto source = std::make_shared<TypedStreamSource<T>>(
        StreamSender::Limits{options.buffered_items, options.buffered_bytes});
    StreamPair<T> pair;
    pair.writer.source_ = source;
    pair.stream.source_ = std::move(source);
    return pair;
  }
  template <class T>
  static Stream<T> read(std::shared_ptr<TypedStreamReader<T>> reader) {
    Stream<T> stream;
    stream.reader_ = std::move(reader);
    return stream;
  }
  template <class T>
  static std::shared_ptr<StreamSource> source(const Stream<T>& stream) {
    return stream.source_;
  }
  template <class T>
  static TypedStreamSource<T>& source(const StreamWriter<T>& writer) {
    return writer.source();
  }
};

}  // namespace internal

template <class T>
StreamPair<T> make_stream(const StreamOptions& options = StreamOptions()) {
  return internal::StreamAccess::make<T>(options);
}

/// A stream that `write(StreamWriter<T>&)` writes, in a task of the current worker's: the result of
/// a method. What it throws ends the stream as StreamWriter::fail(); otherwise it ends where that
/// returns. The task has the context of the call that is served, and its deadline; it takes one of
/// the worker's threads as long as it runs, and gives up its place while it waits.
template <class T, class Write>
Stream<T> write_stream(Write write, const StreamOptions& options = StreamOptions()) {
  StreamPair<T> pair = make_stream<T>(options);
  internal::run_stream_writer(
      [writer = std::move(pair.writer), write = std::move(write)]() mutable {
        try {
          write(writer);
          writer.finish();
        } catch (...) {
          writer.fail(std::current_exception());
        }
      });
  return std::move(pair.stream);
}

/// Where a method's result stands, or its last argument; no container or struct has it.
template <class T>
struct Codec<Stream<T>> {
  static void encode(ValueWriter& writer, const Stream<T>& stream) {
    internal::write_stream(writer, internal::StreamAccess::source(stream));
  }
  static Stream<T> decode(const ValueReader& reader) {
    internal::MessageRoute& route = internal::stream_route(reader);
    auto typed =
        std::make_shared<internal::TypedStreamReader<T>>(route, internal::stream_id(reader));
    typed->begin(route);
    return internal::StreamAccess::read<T>(std::move(typed));
  }
  static std::string signature() { return "stream<" + Codec<T>::signature() + ">"; }
};

}  // namespace sinew
