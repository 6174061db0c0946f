#pragma once

#include <cstdint>
#include <string_view>

namespace sinew::internal {

/// The method by which the reader's worker asks for items, `(binary id, integer items, integer
/// bytes) -> tuple<integer, list, integer, binary?>`: no more items than that, and no more bytes,
/// unless one item has more. It is answered once there is an item, or the end: with the number of
/// the first item, the items, a StreamState, and with kFailed a serialised proto::Error.
inline constexpr std::string_view kPullMethod = "sinew.stream.pull";
/// `(binary id) -> null`: the reader has stopped.
inline constexpr std::string_view kStopMethod = "sinew.stream.stop";

/// Behind the items of an answer.
enum class StreamState : std::uint8_t { kOpen, kEnded, kFailed };

}  // namespace sinew::internal
