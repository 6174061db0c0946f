#include "sinew/launch/run/end_table.h"

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sinew::internal {
namespace {

std::string how_ended(const JobState& state, std::size_t process) {
  const JobState::Process& it = state.process(process);
  if (it.state == JobState::ProcessState::kIdle) return "was not started";
  const bool is_first = state.first_failure() == process;
  return absl::StrCat(it.end.text(),
                      it.told == 0 ? "" : absl::StrCat(", told to by ", signal_name(it.told)),
                      is_first ? "  <- failed first" : "");
}

}  // namespace

std::string end_table(const Supervisor& supervisor, const JobPlace& place) {
  const JobState& state = supervisor.state();
  std::size_t role_width = 4;
  for (const JobRole& role : place.roles) role_width = std::max(role_width, role.name.size());
  const int width = static_cast<int>(role_width);
  std::string table = absl::StrFormat("%6s  %5s  %-*s  %8s  %9s  end\n", "rank", "local", width,
                                      "role", "pid", "seconds");
  for (std::size_t process = 0; process < state.processes().size(); ++process) {
    const Supervisor::Record& record = supervisor.record(process);
    const double seconds = std::chrono::duration<double>(record.ended - record.started).count();
    absl::StrAppendFormat(&table, "%6d  %5d  %-*s  %8s  %9.2f  %s\n", place.rank(process), process,
                          width, place.role(process).name,
                          record.pid < 0 ? "-" : absl::StrCat(record.pid), seconds,
                          how_ended(state, process));
  }
  return table;
}

std::string process_text(const Supervisor& supervisor, const JobPlace& place, std::size_t process) {
  const pid_t pid = supervisor.record(process).pid;
  return absl::StrCat("rank ", place.rank(process), " (", place.role(process).name,
                      pid < 0 ? "" : absl::StrCat(", pid ", pid), ") ",
                      supervisor.state().process(process).end.text());
}

}  // namespace sinew::internal
