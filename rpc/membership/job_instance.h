#pragma once

#include <cstdint>
#include <string>
#include <tuple>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sinew::internal {

/// Tells apart the jobs that were founded under one name. Drawn when a job is founded, and ordered
/// so that of two which meet both ends agree on the later one: by the launcher's attempt, then by
/// time, then by chance. A value type.
struct JobInstance {
  /// Which start of the job this is, as its launcher counts; 0 where none does.
  std::uint64_t attempt = 0;
  /// Microseconds since 1970 by the founder's clock.
  std::uint64_t time_us = 0;
  std::uint64_t random = 0;

  /// False for {0, 0, 0}, which is none: that of a worker that has not found its job yet.
  bool valid() const { return *this != JobInstance{}; }

  friend bool operator==(const JobInstance& a, const JobInstance& b) { return a.key() == b.key(); }
  friend bool operator!=(const JobInstance& a, const JobInstance& b) { return a.key() != b.key(); }
  friend bool operator<(const JobInstance& a, const JobInstance& b) { return a.key() < b.key(); }
  friend bool operator>(const JobInstance& a, const JobInstance& b) { return a.key() > b.key(); }
  friend bool operator<=(const JobInstance& a, const JobInstance& b) { return a.key() <= b.key(); }
  friend bool operator>=(const JobInstance& a, const JobInstance& b) { return a.key() >= b.key(); }

 private:
  std::tuple<std::uint64_t, std::uint64_t, std::uint64_t> key() const {
    return {attempt, time_us, random};
  }
};

/// Of a job that is founded now.
JobInstance draw_job_instance();

/// `0-65f2a1b3c4d5e-1a2b3c4d5e6f7788`: attempt, time and random in hexadecimal.
std::string to_string(const JobInstance& instance);

/// Takes what to_string() gives, that of no instance too, and nothing else: kInvalidArgument, with
/// the text.
absl::StatusOr<JobInstance> parse_job_instance(absl::string_view text);

}  // namespace sinew::internal
