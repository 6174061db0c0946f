#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace sinew::testing {

/// A control group of this machine's, of version 1 or 2, for processes that a test starts. Removed
/// when this goes; its processes must have ended by then.
class ControlGroup {
 public:
  /// With one controller: "memory", "pids", "cpu" or "cpuset". Where the machine lets nobody make
  /// one, obstacle() says why.
  explicit ControlGroup(const std::string& controller);
  ~ControlGroup();
  ControlGroup(const ControlGroup&) = delete;
  ControlGroup& operator=(const ControlGroup&) = delete;

  /// Empty if the group is there.
  const std::string& obstacle() const { return obstacle_; }

  /// Throws std::runtime_error when the system refuses.
  void limit_memory(std::size_t bytes) const;
  void limit_threads(int most) const;
  void limit_cores(double cores) const;
  void limit_to_one_cpu() const;
  /// As the process reads it in HostLimits.
  std::string name() const { return "/" + folder_.filename().string(); }

  /// What runs `command` in the group.
  std::vector<std::string> entered_by(const std::vector<std::string>& command) const;

 private:
  void write(const std::string& file, const std::string& text) const;

  bool is_first_version_ = false;
  std::filesystem::path folder_;
  std::string obstacle_;
};

}  // namespace sinew::testing
