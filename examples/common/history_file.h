#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>

namespace examples {

/// What a process has asked others for, and what has become of it, for programs that look
/// afterwards whether all of it is there, and once. One JSON object a line:
///
///     {"kind": "step", "id": "trainer0.7", "worker": "trainer0", "target": "servers",
///      "result": "ok", "step": "1.0.6", "run": 0, "versions": {"server0": 7}}
///
/// What is asked of others is written as unknown before it is sent, and once more, with its id,
/// when the result is known. Lines are appended in one piece, so the processes of a host may share
/// a file, and a kill costs none. Thread-safe.
class HistoryFile {
 public:
  /// By owner: how many steps are in what it has.
  using Versions = std::map<std::string, std::uint64_t>;
  enum class Result { kOk, kDidNotRun, kUnknown };
  /// An attempt to make a step.
  struct Step {
    std::string id;
    /// Which step of the training; several attempts may be of one.
    std::string step;
    /// Counts the loads of checkpoints before it.
    std::int64_t run = 0;
  };

  /// Without a file nothing is written. Throws std::runtime_error with its name when it cannot be
  /// opened; so do the others when it cannot be written.
  HistoryFile(const std::filesystem::path& file, std::string worker, std::string target);
  ~HistoryFile();
  HistoryFile(const HistoryFile&) = delete;
  HistoryFile& operator=(const HistoryFile&) = delete;

  void add(const Step& step, Result result, const Versions& versions = {});
  /// Something that is added to the target.
  void add_increment(const std::string& id, Result result);
  /// By the owner of the target: it has it.
  void add_applied(const std::string& id);
  /// All owners have gone back to a checkpoint, with which run number `run` begins.
  void add_load(std::int64_t run, const Versions& versions);

 private:
  /// `rest`: what a kind has beside the worker and the target.
  void write(const std::string& kind, const std::string& id, const std::string& rest);

  const std::filesystem::path path_;
  const std::string worker_;
  const std::string target_;
  int file_ = -1;
  std::mutex mutex_;
};

}  // namespace examples
