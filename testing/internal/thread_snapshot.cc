#include "sinew/testing/internal/thread_snapshot.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace sinew::internal {
namespace {

std::uint64_t number_of(absl::string_view text) {
  std::uint64_t number = 0;
  return absl::SimpleAtoi(text, &number) ? number : 0;
}

}  // namespace

ThreadSnapshot ThreadSnapshot::take() {
  ThreadSnapshot snapshot;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    const int id = static_cast<int>(number_of(entry.path().filename().native()));
    if (id == ::gettid()) continue;
    std::ifstream file(entry.path() / "status");
    // Not by iterators, which throw where it ends meanwhile.
    std::ostringstream text;
    text << file.rdbuf();
    const std::string status = text.str();
    // It has ended.
    if (status.empty()) continue;
    Thread thread;
    for (absl::string_view line : absl::StrSplit(status, '\n')) {
      if (absl::ConsumePrefix(&line, "Name:\t")) {
        thread.name = std::string(line);
      } else if (absl::ConsumePrefix(&line, "State:\t")) {
        // Sleeping, or ended.
        thread.sleeps = !line.empty() && absl::StrContains("SZX", line.substr(0, 1));
      } else if (absl::ConsumePrefix(&line, "voluntary_ctxt_switches:\t") ||
                 absl::ConsumePrefix(&line, "nonvoluntary_ctxt_switches:\t")) {
        thread.turns += number_of(line);
      }
    }
    snapshot.threads_.emplace(id, std::move(thread));
  }
  return snapshot;
}

bool ThreadSnapshot::all_sleep() const {
  return std::all_of(threads_.begin(), threads_.end(),
                     [](const auto& each) { return each.second.sleeps; });
}

std::string ThreadSnapshot::awake_since(const ThreadSnapshot& earlier) const {
  std::vector<std::string> names;
  for (const auto& [id, thread] : threads_) {
    const auto before = earlier.threads_.find(id);
    const bool slept = before != earlier.threads_.end() && before->second.sleeps &&
                       before->second.turns == thread.turns && thread.sleeps;
    if (!slept) names.push_back(absl::StrCat("'", thread.name, "'"));
  }
  for (const auto& [id, thread] : earlier.threads_) {
    if (threads_.count(id) == 0) names.push_back(absl::StrCat("'", thread.name, "'"));
  }
  return absl::StrJoin(names, ", ");
}

}  // namespace sinew::internal
