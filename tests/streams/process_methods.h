#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "sinew/rpc/rpc.h"
#include "sinew/rref/rref.h"
#include "sinew/streams/stream.h"

/// What workers in processes of their own do for the tests of streams.
namespace stream_processes {

inline std::mutex mutex;
inline std::vector<std::int64_t> noted;

/// Keeps a number for noted_numbers().
inline void note(std::int64_t number) {
  const std::lock_guard<std::mutex> lock(mutex);
  noted.push_back(number);
}
inline std::vector<std::int64_t> noted_numbers() {
  const std::lock_guard<std::mutex> lock(mutex);
  return std::exchange(noted, {});
}

inline sinew::Stream<std::int64_t> count(std::int64_t n) {
  return sinew::write_stream<std::int64_t>([n](sinew::StreamWriter<std::int64_t>& writer) {
    for (std::int64_t i = 0; n < 0 || i < n; ++i) writer.write(i);
  });
}

/// Each of a megabyte, and full of its number.
inline sinew::Stream<at::Tensor> tensors(std::int64_t n) {
  return sinew::write_stream<at::Tensor>([n](sinew::StreamWriter<at::Tensor>& writer) {
    for (std::int64_t i = 0; n < 0 || i < n; ++i) {
      writer.write(at::full({1 << 18}, static_cast<double>(i), at::kFloat));
    }
  });
}

/// Has another worker note what it reads; returns how much that was.
std::int64_t pass_on(const std::string& to, sinew::Stream<std::int64_t> numbers);

}  // namespace stream_processes

SINEW_METHOD(stream_processes::note, stream_processes::noted_numbers, stream_processes::count,
             stream_processes::tensors, stream_processes::pass_on);

namespace stream_processes {

inline std::int64_t pass_on(const std::string& to, sinew::Stream<std::int64_t> numbers) {
  const sinew::Peer peer = sinew::current_worker().peer(to);
  std::int64_t count = 0;
  for (const std::int64_t number : numbers) {
    peer.call<&note>(number);
    ++count;
  }
  return count;
}

inline sinew::MethodTable table() {
  return std::move(sinew::MethodTable().add<&note, &noted_numbers, &count, &tensors, &pass_on>());
}

}  // namespace stream_processes
