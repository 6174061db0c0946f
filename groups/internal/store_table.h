#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "sinew/rpc/base/threads/timer_queue.h"
#include "sinew/store.pb.h"

namespace sinew::internal {

/// The keys and values of a store, and who waits for which. No thread, no clock, no lock of its
/// own: the shell around it hands in requests and the time, and sends the replies. Requests may be
/// hostile.
class StoreTable {
 public:
  struct Limits {
    std::size_t max_key_bytes = 4096;
    std::size_t max_value_bytes = std::size_t{16} << 20;
    std::size_t max_keys = 1'000'000;
    /// Of keys and values together.
    std::size_t max_bytes = std::size_t{1} << 30;
    std::size_t max_waiters = 65'536;
    /// Of the keys that are waited for.
    std::size_t max_waiting_bytes = std::size_t{256} << 20;
    std::size_t max_keys_of_a_wait = 65'536;
  };
  /// Chosen by the shell, one for each request that waits.
  using WaiterId = std::uint64_t;
  struct Answer {
    WaiterId waiter = 0;
    proto::StoreReply reply;
  };

  StoreTable() : StoreTable(Limits()) {}
  explicit StoreTable(const Limits& limits) : limits_(limits) {}

  /// What follows from a request: the answers that are due, to it or to others that waited. It
  /// waits if its own is not among them.
  std::vector<Answer> handle(WaiterId id, const proto::StoreRequest& request, Clock::TimePoint now);
  /// The waits that have lasted too long end with kDeadlineExceeded.
  std::vector<Answer> expire(Clock::TimePoint now);
  /// When expire() has something to do; unset: no request waits.
  std::optional<Clock::TimePoint> next_expiry() const;
  /// The answer is not needed any more.
  void forget(WaiterId id);
  /// All waits end with that.
  std::vector<Answer> fail_all(const absl::Status& reason);

  std::size_t num_keys() const { return values_.size(); }
  std::size_t num_waiters() const { return waiters_.size(); }
  std::size_t used_bytes() const { return used_bytes_; }

 private:
  struct Waiter {
    bool wants_value = false;
    std::string first_key;
    /// Those that are not there.
    std::set<std::string> missing;
    /// Of `missing` in the beginning.
    std::size_t bytes = 0;
    Clock::TimePoint deadline;
  };

  absl::Status check(const proto::StoreRequest& request) const;
  proto::StoreReply apply(const proto::StoreRequest& request, std::vector<Answer>& answers);
  absl::Status put(const std::string& key, const std::string& value, std::vector<Answer>& answers);
  proto::StoreReply add(const std::string& key, std::int64_t amount, std::vector<Answer>& answers);
  void wake(const std::string& key, std::vector<Answer>& answers);
  void unpark(std::map<WaiterId, Waiter>::iterator waiter);

  const Limits limits_;
  absl::flat_hash_map<std::string, std::string> values_;
  std::size_t used_bytes_ = 0;
  std::map<WaiterId, Waiter> waiters_;
  std::size_t waiting_bytes_ = 0;
  absl::flat_hash_map<std::string, std::set<WaiterId>> waiting_for_;
  std::set<std::pair<Clock::TimePoint, WaiterId>> deadlines_;
};

/// The error of a wait that has lasted too long, for `missing` keys (some are named).
absl::Status missing_keys_error(const std::vector<std::string>& missing);

proto::StoreReply reply_of(const absl::Status& status);
/// The error in a reply, which may come from a stranger.
absl::Status status_of(const proto::StoreReply& reply);

}  // namespace sinew::internal
