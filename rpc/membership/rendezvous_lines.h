#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "sinew/rpc/membership/directory.h"
#include "sinew/rpc/membership/job_instance.h"

namespace sinew::internal {

/// One worker in a rendezvous file. Of the member only the worker and its address are written.
struct RendezvousEntry {
  Member member;
  JobInstance instance;
};

/// The text of a rendezvous file, as one job sees it. A value type.
struct RendezvousLines {
  /// Of the job, in the order of their lines.
  std::vector<RendezvousEntry> entries;
  /// Lines of other jobs, as they are.
  std::vector<std::string> foreign;
  /// One for each line that makes no sense, or is in the format of another version: its number in
  /// the file at `path`, and what is wrong with it.
  std::vector<std::string> warnings;
};

/// Text that is no file of ours gives warnings only.
RendezvousLines parse_rendezvous_lines(const std::string& path, const std::string& job,
                                       absl::string_view text);

/// Empty if no job has an entry.
std::string format_rendezvous_lines(const std::string& job, const RendezvousLines& lines);

}  // namespace sinew::internal
