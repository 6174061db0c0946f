#pragma once

#include <cstdint>

namespace sinew {

/// Why a worker is no member any more, or is lost for another one.
enum class Gone : std::uint8_t {
  /// It left or was lost while the one who says so did not hear of it.
  kUnknown,
  /// It said goodbye: a graceful shutdown.
  kLeft,
  kProcessEnded,
  /// It was not heard for a lease, by the registrar or by the worker that reports it.
  kSilent,
  /// It did not come back within a lease of the registrar's start.
  kNotReturned,
  /// Its name or rank is another worker's, which more of those who came back know.
  kReplaced,
  /// It is of another instance of the job.
  kOtherJob,
  /// It and another member cannot reach each other.
  kLostEachOther,
  // The list never says these.
  /// Its address refuses connections, or another worker answers there.
  kAddressRefuses,
  /// It has ended its link with the one who says so.
  kLinkEndedThere,
  /// The worker that reports it has ended the link.
  kLinkClosed,
};

namespace internal {
/// What is behind this a list of members never says.
inline constexpr Gone kLastOfList = Gone::kLostEachOther;
/// For people: "its process has ended".
const char* to_text(Gone why);
}  // namespace internal

}  // namespace sinew
