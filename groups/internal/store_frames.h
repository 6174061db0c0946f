#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "sinew/store.pb.h"

namespace sinew::internal {

/// Larger frames are not read. Two values and their key fit, as compare_set() has them.
inline constexpr std::size_t kMaxStoreFrameBytes = std::size_t{33} << 20;
/// The first frame of a connection is no longer than that.
inline constexpr std::size_t kMaxGreetingBytes = 64;

/// The bytes of a frame, with their length in front.
std::string seal_frame(const proto::StoreFrame& frame);
proto::StoreFrame greeting_frame();
/// kFailedPrecondition: of another protocol or version.
absl::Status check_greeting(const proto::StoreFrame& frame);

/// Cuts what comes on a connection into frames. The bytes may be hostile.
class FrameReader {
 public:
  void append(const char* bytes, std::size_t count) { bytes_.append(bytes, count); }
  /// The next frame; nullopt when it is not there as a whole. kInvalidArgument: what came is no
  /// frame of at most `max_bytes`; the connection is of no more use.
  absl::StatusOr<std::optional<proto::StoreFrame>> next(std::size_t max_bytes);

 private:
  std::string bytes_;
  std::size_t read_ = 0;
};

}  // namespace sinew::internal
