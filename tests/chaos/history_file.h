#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chaos {

/// By owner: how many steps are in what it has.
using Versions = std::map<std::string, std::int64_t>;

/// Writes what a worker asks of others, and what has become of it: the lines of
/// tests/docker/lab/history.py, each in one piece, so that a process that is killed loses none.
/// Thread-safe. Throws std::runtime_error when the file cannot be written.
class HistoryFile {
 public:
  enum class Result { kOk, kDidNotRun, kUnknown };

  HistoryFile(const std::string& path, std::string worker);
  ~HistoryFile();
  HistoryFile(const HistoryFile&) = delete;
  HistoryFile& operator=(const HistoryFile&) = delete;

  void increment(const std::string& id, const std::string& target, Result result);
  /// By the owner of the counter `target`, when it has it.
  void applied(const std::string& id, const std::string& target);
  /// An attempt to make the step `number`. `versions` are those of a step that was acknowledged.
  void step(const std::string& id, std::int64_t number, std::int64_t run, Result result,
            const Versions& versions = {});
  void load(std::int64_t run, const Versions& versions);
  /// What is found in the end, by owner: ids, each as often as it is there.
  void read(const std::map<std::string, std::vector<std::string>>& applied,
            const Versions& versions);

 private:
  using Fields = std::vector<std::pair<std::string_view, std::string>>;
  void write(std::string_view kind, std::string_view target, const Fields& fields);

  const std::string worker_;
  const int file_;
  std::mutex mutex_;
};

}  // namespace chaos
