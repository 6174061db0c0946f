#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/testing/internal/fault_table.h"

namespace sinew::internal {

/// The messages of a stepped network that are under way. Without workers and transports.
/// Thread-safe; what goes on does so on the calling thread, with no lock held.
class StepQueue {
 public:
  /// Lets a message go on: as the verdict says, or, without one, as the faults do.
  using GoOn = absl::AnyInvocable<void(std::optional<FaultTable::Verdict>) &&>;

  /// Until begin(), and from end() on, messages do not wait here. end() lets go of those that do.
  void begin();
  void end();
  bool is_on() const;

  /// For a message that is to be added.
  std::uint64_t new_number();
  /// Keeps a message; `call_id` is its caller's number of the call. It goes on at once when
  /// messages do not wait.
  void add(testing::Message message, std::uint64_t call_id, GoOn go_on);
  /// Those that have arrived since the last one went on stand behind the older ones. Their order
  /// among themselves does not depend on when each has arrived: by sender, receiver and call.
  std::vector<testing::Message> list() const;
  /// Lets one go on, if it is still here.
  void let_go(std::uint64_t number, std::optional<FaultTable::Verdict> verdict = std::nullopt);
  /// Lets all go on that this worker has sent, or is to get.
  void let_go_of(std::string_view worker);

 private:
  // How many have gone on before, from, to, leg, call, number.
  using Place = std::tuple<std::uint64_t, std::string, std::string, testing::Leg, std::uint64_t,
                           std::uint64_t>;
  struct Waiting {
    testing::Message message;
    GoOn go_on;
  };

  mutable Mutex mutex_;
  bool is_on_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t gone_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<Place, Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
