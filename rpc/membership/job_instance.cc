#include "sinew/rpc/membership/job_instance.h"

#include <chrono>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/ids.h"

namespace sinew::internal {

JobInstance draw_job_instance() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  JobInstance instance;
  instance.time_us = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(now).count());
  instance.random = random_secret();
  return instance;
}

std::string to_string(const JobInstance& instance) {
  return absl::StrFormat("%x-%x-%x", instance.attempt, instance.time_us, instance.random);
}

absl::StatusOr<JobInstance> parse_job_instance(absl::string_view text) {
  const std::vector<absl::string_view> fields = absl::StrSplit(text, '-');
  JobInstance instance;
  const bool are_numbers = fields.size() == 3 &&
                           absl::SimpleHexAtoi(fields[0], &instance.attempt) &&
                           absl::SimpleHexAtoi(fields[1], &instance.time_us) &&
                           absl::SimpleHexAtoi(fields[2], &instance.random);
  // SimpleHexAtoi() takes blanks, signs, capitals and "0x" too. One text for one instance: texts
  // are compared by people, in logs of several workers.
  if (are_numbers && to_string(instance) == text) return instance;
  return absl::InvalidArgumentError(
      absl::StrCat("'", printable(std::string(text), 80), "' is no instance of a job"));
}

}  // namespace sinew::internal
