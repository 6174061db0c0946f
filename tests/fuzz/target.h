#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace sinew::fuzz {

/// What takes bytes of strangers.
struct Target {
  const char* name;
  /// Right ones: what is fed is made of these.
  std::vector<std::string> (*seeds)();
  /// Feeds it. Whether it took them. Throws NotTheSame for what is taken and does not read the same
  /// when it is written again, or breaks another rule of its own.
  bool (*feed)(std::string_view bytes);
};

struct NotTheSame : std::logic_error {
  using std::logic_error::logic_error;
};
inline void expect(bool holds, const char* rule) {
  if (!holds) throw NotTheSame(rule);
}

/// All of them, by file.
std::vector<Target> connection_targets();
std::vector<Target> job_targets();
std::vector<Target> text_targets();
std::vector<Target> machine_targets();
std::vector<Target> layer_targets();
std::vector<Target> all_targets();

}  // namespace sinew::fuzz
