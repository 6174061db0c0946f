#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "sinew/rpc/link/link.h"

namespace sinew::internal {

/// A hash of whatever is put into it, in order.
class Digest {
 public:
  void add(std::uint64_t value) {
    std::uint64_t z = state_ ^ (value + 0x9e3779b97f4a7c15u + (state_ << 6) + (state_ >> 2));
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    state_ = z ^ (z >> 31);
  }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0;
};

/// Looks into a link: links that behave alike from `now` on have one digest. Frames are told apart
/// by what `Outbound` says, times by how far off they are.
struct LinkInspector {
  static void add(const Link& link, Link::TimePoint now, Digest& digest);
  static void add(const LinkLanes& lanes, Link::TimePoint now, Digest& digest);
  static void add(const LinkLife& life, Link::TimePoint now, Digest& digest);
  static void add(const FrameNumbers& numbers, Digest& digest);
  static void add(const LinkHeader& header, Digest& digest);
  static void add(const LinkHello& hello, Digest& digest);
  static void add(const ConnectionName& name, Digest& digest);
  static void add(absl::Span<const NumberRange> ranges, Digest& digest);

  /// Entries for frames that wait, whether they have ended or not.
  static std::size_t waiting(const LinkLanes& lanes) {
    std::size_t entries = 0;
    for (const auto& waiting : lanes.waiting_) entries += waiting.size();
    return entries;
  }
  static bool fenced(const Link& link, Link::TimePoint now) { return link.life_.fenced(now); }
};

}  // namespace sinew::internal
