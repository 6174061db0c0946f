#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {

/// What a spawned process and the one that spawned it agree on. Each spawned process has the task
/// (a message that is the same for all) and a report of its own as files in memory.

inline constexpr int kTaskDescriptor = 3;
inline constexpr int kReportDescriptor = 4;

/// What a process was spawned for, in addition to the task.
struct SpawnTicket {
  int rank = 0;
  enum class Kind { kNormal, kDaemon } kind = Kind::kNormal;

  /// The variable that carries it, which makes a process a spawned one.
  static constexpr char kVariable[] = "SINEW_SPAWN";
  std::string text() const;
  /// kInvalidArgument if it is no such text.
  static absl::StatusOr<SpawnTicket> parse(const std::string& text);
};

/// How far a spawned process came.
enum class SpawnStage : char {
  /// main() has not called init_launch().
  kStarted = 0,
  kRuns = 1,
  kReturned = 2,
  /// An error stands behind it.
  kThrew = 3,
};

struct SpawnReport {
  SpawnStage stage = SpawnStage::kStarted;
  /// Of kThrew.
  ErrorInfo error;
};

void write_report(int descriptor, const SpawnReport& report);
/// What is broken is an error of the report: kDataLoss.
SpawnReport read_report(int descriptor);

/// Runs the task of this process and returns what it is to exit with.
int run_spawned(const SpawnTicket& ticket);

}  // namespace sinew::internal
