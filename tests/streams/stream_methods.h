#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "sinew/rpc/rpc.h"
#include "sinew/rref/rref.h"
#include "sinew/streams/stream.h"

/// What the tests of streams call.
namespace stream_methods {

struct Record {
  std::string name;
  std::vector<std::int64_t> numbers;
};

}  // namespace stream_methods
SINEW_STRUCT(stream_methods::Record, name, numbers);

namespace stream_methods {

/// Of count_for_ever(): what it has written, and the code of the error that it ended with.
inline std::atomic<std::int64_t> written{0};
inline std::atomic<int> stopped_with{0};

inline sinew::Stream<std::int64_t> count(std::int64_t n) {
  return sinew::write_stream<std::int64_t>([n](sinew::StreamWriter<std::int64_t>& writer) {
    for (std::int64_t i = 0; i < n; ++i) writer.write(i);
  });
}

inline sinew::Stream<std::int64_t> count_for_ever(std::uint64_t room) {
  sinew::StreamOptions options;
  options.buffered_items = room;
  stopped_with = 0;
  return sinew::write_stream<std::int64_t>(
      [](sinew::StreamWriter<std::int64_t>& writer) {
        try {
          for (std::int64_t i = 0;; ++i) {
            writer.write(i);
            written = i + 1;
          }
        } catch (const sinew::RpcError& error) {
          stopped_with = static_cast<int>(error.code());
          throw;
        }
      },
      options);
}

inline sinew::Stream<double> halves(std::int64_t n) {
  return sinew::write_stream<double>([n](sinew::StreamWriter<double>& writer) {
    for (std::int64_t i = 0; i < n; ++i) writer.write(static_cast<double>(i) / 2);
  });
}

inline double sum_scaled(double scale, sinew::Stream<double> numbers) {
  double sum = 0;
  for (const double number : numbers) sum += scale * number;
  return sum;
}

inline std::int64_t length(sinew::Stream<std::string> texts) {
  std::int64_t length = 0;
  for (const std::string& text : texts) length += static_cast<std::int64_t>(text.size());
  return length;
}

inline sinew::Stream<std::string> louder(sinew::Stream<std::string> words) {
  return sinew::write_stream<std::string>(
      [words = std::move(words)](sinew::StreamWriter<std::string>& writer) mutable {
        for (std::string& word : words) writer.write(word + "!");
      });
}

/// Reads so many, and no more.
inline std::int64_t first_sum(std::int64_t n, sinew::Stream<double> numbers) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += numbers.next().value_or(0);
  return static_cast<std::int64_t>(sum);
}

inline sinew::Stream<Record> records(std::int64_t n) {
  return sinew::write_stream<Record>([n](sinew::StreamWriter<Record>& writer) {
    for (std::int64_t i = 0; i < n; ++i) writer.write({"record " + std::to_string(i), {0, 1, 2}});
  });
}

inline sinew::Stream<std::uint8_t> bytes(const std::string& text) {
  auto [writer, stream] = sinew::make_stream<std::uint8_t>();
  for (const char each : text) writer.write(static_cast<std::uint8_t>(each));
  writer.finish();
  return std::move(stream);
}

inline sinew::Stream<at::Tensor> tensors(std::int64_t n, std::int64_t numbers) {
  return sinew::write_stream<at::Tensor>([n, numbers](sinew::StreamWriter<at::Tensor>& writer) {
    for (std::int64_t i = 0; i < n; ++i) writer.write(at::full({numbers}, i, at::kFloat));
  });
}

inline sinew::Stream<sinew::RRef<std::int64_t>> references(std::int64_t n) {
  using Reference = sinew::RRef<std::int64_t>;
  return sinew::write_stream<Reference>([n](sinew::StreamWriter<Reference>& writer) {
    for (std::int64_t i = 0; i < n; ++i) writer.write(sinew::make_rref(i));
  });
}

inline sinew::Future<sinew::Stream<std::int64_t>> count_later(std::int64_t n) {
  return sinew::make_ready_future().then([n] { return count(n); });
}

/// So many numbers, then an error.
inline sinew::Stream<std::int64_t> count_and_fail(std::int64_t n) {
  return sinew::write_stream<std::int64_t>([n](sinew::StreamWriter<std::int64_t>& writer) {
    for (std::int64_t i = 0; i < n; ++i) writer.write(i);
    throw sinew::RpcError(sinew::ErrorCode::kDataLoss, "the numbers are used up");
  });
}

/// So many numbers; then its writer is forgotten.
inline sinew::Stream<std::int64_t> count_and_forget(std::int64_t n) {
  auto [writer, stream] = sinew::make_stream<std::int64_t>();
  for (std::int64_t i = 0; i < n; ++i) writer.write(i);
  return std::move(stream);
}

/// Fails before it reads.
inline double refuse(sinew::Stream<double>) {
  throw sinew::RpcError(sinew::ErrorCode::kPermissionDenied, "not today");
}

/// Writes nothing, for ever.
inline sinew::Stream<std::int64_t> silent() {
  static auto& writers = *new std::vector<sinew::StreamWriter<std::int64_t>>();
  auto [writer, stream] = sinew::make_stream<std::int64_t>();
  writers.push_back(std::move(writer));
  return std::move(stream);
}

/// What a stream is on the wire: the id of nothing.
inline std::vector<std::uint8_t> not_a_stream(std::int64_t bytes) {
  return std::vector<std::uint8_t>(static_cast<std::size_t>(bytes), 7);
}

class Source {
 public:
  explicit Source(std::int64_t factor) : factor_(factor) {}
  sinew::Stream<std::int64_t> multiples(std::int64_t n) {
    return sinew::write_stream<std::int64_t>(
        [n, factor = factor_](sinew::StreamWriter<std::int64_t>& writer) {
          for (std::int64_t i = 0; i < n; ++i) writer.write(factor * i);
        });
  }

 private:
  const std::int64_t factor_;
};

}  // namespace stream_methods

SINEW_METHOD(stream_methods::count, stream_methods::count_for_ever, stream_methods::halves,
             stream_methods::sum_scaled, stream_methods::length, stream_methods::louder,
             stream_methods::first_sum, stream_methods::records, stream_methods::bytes,
             stream_methods::tensors, stream_methods::references, stream_methods::count_later,
             stream_methods::count_and_fail, stream_methods::count_and_forget,
             stream_methods::refuse, stream_methods::silent, stream_methods::not_a_stream);
SINEW_SERVICE(stream_methods::Source, (std::int64_t), multiples);

namespace stream_methods {

inline sinew::MethodTable table() {
  return std::move(sinew::MethodTable()
                       .add<&count, &count_for_ever, &halves, &sum_scaled, &length, &louder,
                            &first_sum, &records, &bytes, &tensors, &references, &count_later,
                            &count_and_fail, &count_and_forget, &refuse, &silent, &not_a_stream>()
                       .serve<Source>());
}

}  // namespace stream_methods
