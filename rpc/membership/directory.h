#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::internal {

/// One member of the job and where to reach it.
struct Member {
  WorkerInfo worker;
  std::string address;
  std::uint64_t method_digest = 0;
  /// Those that messages may name. Unset: the worker was met before the list with it came.
  std::optional<std::vector<c10::Device>> devices = std::nullopt;
  /// It can take part in transfers from device to device.
  bool has_device_plane = false;

  friend bool operator==(const Member& a, const Member& b) {
    return a.worker == b.worker && a.address == b.address && a.method_digest == b.method_digest &&
           a.devices == b.devices && a.has_device_plane == b.has_device_plane;
  }
  friend bool operator!=(const Member& a, const Member& b) { return !(a == b); }
};

/// Who is in the job, as this worker knows it. A newer incarnation replaces the older one of its
/// name. Thread-safe.
class Directory {
 public:
  /// Replaces the whole list when `version` is newer than the one in force; an older or equal one
  /// changes nothing. Of two members with one name or rank the later one in `members` stays.
  void replace(std::uint64_t version, const std::vector<Member>& members);

  /// kNotFound with a text that lists the known names (at most 16).
  absl::StatusOr<Member> find(std::string_view name) const;
  /// kNotFound names the rank and the ranks that exist.
  absl::StatusOr<Member> find(std::int32_t rank) const;
  /// kNotFound also when another incarnation holds the name.
  absl::StatusOr<Member> find(const WorkerInfo& worker) const;
  /// Sorted by rank.
  std::vector<Member> members() const;

 private:
  void add_locked(const Member& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void erase_locked(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string known_names_locked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string known_ranks_locked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  std::uint64_t version_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<std::string, Member> by_name_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::int32_t, std::string> name_by_rank_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
