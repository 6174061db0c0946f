#include "sinew/rpc/link/link_codec.h"

#include <algorithm>

#include "sinew/link.pb.h"
#include "sinew/rpc/base/internal/malformed.h"

namespace sinew::internal {
namespace {

using Numbers = google::protobuf::RepeatedField<std::uint64_t>;

constexpr std::uint64_t kMicrosecondsPerYear = std::uint64_t{365} * 24 * 3600 * 1000000;

void write_ranges(const NumberRanges& ranges, Numbers& numbers) {
  numbers.Reserve(static_cast<int>(2 * ranges.size()));
  for (const NumberRange& range : ranges) {
    numbers.Add(range.first);
    numbers.Add(range.last);
  }
}

bool read_ranges(const Numbers& numbers, NumberRanges& ranges) {
  if (numbers.size() % 2 != 0) return false;
  ranges.reserve(static_cast<std::size_t>(numbers.size() / 2));
  for (int i = 0; i < numbers.size(); i += 2) {
    if (numbers.Get(i) == 0 || numbers.Get(i + 1) < numbers.Get(i)) return false;
    ranges.push_back({numbers.Get(i), numbers.Get(i + 1)});
  }
  return true;
}

std::uint64_t write_duration(std::chrono::nanoseconds duration) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(duration).count());
}

}  // namespace

std::chrono::microseconds read_duration(std::uint64_t microseconds) {
  return std::chrono::microseconds(std::min(microseconds, kMicrosecondsPerYear));
}

void write_link_hello(const LinkHello& hello, proto::Hello& message) {
  message.set_attempt(hello.connection.attempt);
  message.set_last_up_opener(hello.last_up.opener.value);
  message.set_last_up_attempt(hello.last_up.attempt);
  proto::LinkLimits& limits = *message.mutable_limits();
  limits.set_max_frame_bytes(hello.limits.max_frame_bytes);
  limits.set_max_payloads(hello.limits.max_payloads);
  limits.set_max_envelope_bytes(hello.limits.max_envelope_bytes);
  limits.set_request_window_bytes(hello.limits.request_window_bytes);
  limits.set_request_window_frames(hello.limits.request_window_frames);
  limits.set_reply_window_bytes(hello.limits.reply_window_bytes);
  limits.set_control_window_bytes(hello.limits.control_window_bytes);
  message.set_beat_interval_us(write_duration(hello.terms.interval));
  message.set_lease_us(write_duration(hello.terms.lease));
  write_ranges(hello.received[0], *message.mutable_received_control());
  write_ranges(hello.received[1], *message.mutable_received_calls());
  message.set_returned_frames(hello.returned_frames);
  message.set_returned_bytes(hello.returned_bytes);
}

absl::StatusOr<LinkHello> read_link_hello(const proto::Hello& message, Incarnation opener) {
  LinkHello hello;
  hello.connection = {opener, message.attempt()};
  hello.last_up = {{message.last_up_opener()}, message.last_up_attempt()};
  const proto::LinkLimits& limits = message.limits();
  hello.limits.max_frame_bytes = limits.max_frame_bytes();
  hello.limits.max_payloads = limits.max_payloads();
  hello.limits.max_envelope_bytes = limits.max_envelope_bytes();
  hello.limits.request_window_bytes = limits.request_window_bytes();
  hello.limits.request_window_frames = limits.request_window_frames();
  hello.limits.reply_window_bytes = limits.reply_window_bytes();
  hello.limits.control_window_bytes = limits.control_window_bytes();
  hello.terms.interval = read_duration(message.beat_interval_us());
  hello.terms.lease = read_duration(message.lease_us());
  if (!read_ranges(message.received_control(), hello.received[0]) ||
      !read_ranges(message.received_calls(), hello.received[1])) {
    return malformed("receipts that are no ranges of numbers");
  }
  hello.returned_frames = message.returned_frames();
  hello.returned_bytes = message.returned_bytes();
  return hello;
}

}  // namespace sinew::internal
