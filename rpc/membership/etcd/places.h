#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "sinew/rpc/membership/etcd/etcd_options.h"
#include "sinew/rpc/membership/etcd/layout.h"

namespace sinew::internal::etcd {

// How a worker gets a place in the job, without what talks to etcd. Pure.

struct Wanted {
  /// Rank -1: any.
  registry::Record self;
  std::string job;
  /// 0: open membership.
  std::int32_t world_size = 0;
  /// It may found the job.
  bool founds = true;
  /// Of a job that it founds.
  JobInstance instance;
};
absl::Status check(const Wanted& wanted);

/// Says that it waits, and reads what is there.
pb::TxnRequest look_request(const Layout& layout, const Wanted& wanted, std::int64_t lease);

/// To be tried: a place with that rank.
struct Claim {
  std::int32_t rank = 0;
  bool founds = false;
  /// Of `list/job` as it was seen; 0: there was none.
  std::int64_t job_revision = 0;
};
/// Another worker has the name or the rank, with that lease.
struct Held {
  std::int64_t lease = 0;
  std::string why;
};
/// The job must be founded first, by another worker.
struct NotFounded {};
/// Members may still return after etcd was away: no other worker gets their names and ranks until
/// then.
struct Returning {};
/// It is one of a job that has members no more: founded anew if that stays so.
struct Empty {
  Claim claim;
};
/// This worker has its place already.
struct Placed {};
using Place = std::variant<Claim, Held, NotFounded, Returning, Empty, Placed, absl::Status>;

/// What the answer to look_request() leads to. A status: the join fails.
Place find_place(const Layout& layout, const Wanted& wanted, const pb::TxnResponse& seen);

pb::TxnRequest claim_request(const Layout& layout, const Wanted& wanted, const Claim& claim,
                             std::int64_t lease);
/// Writes the keys of a member again whose lease has ended while etcd was away. `founds`: etcd has
/// lost all that it had.
pb::TxnRequest return_request(const Layout& layout, const registry::Record& self,
                              const std::string& job, bool founds, std::int64_t lease);
/// The answer to that, where it has failed: why this worker is out; nullopt: it is back already, or
/// `lost_all` is set.
std::optional<std::string> why_out(const registry::Record& self, const std::string& job,
                                   const pb::TxnResponse& seen, bool& lost_all);
/// That member is out for good. `stays`: unless that one is.
pb::TxnRequest gone_request(const Layout& layout, const registry::Record& member, Gone why,
                            const std::string& reason, Incarnation stays, std::int64_t lease);

/// Whether an empty job has stayed so.
class EmptyJob {
 public:
  bool has_settled(std::int64_t job_revision, Time now, Time settle) {
    if (job_revision != revision_) {
      revision_ = job_revision;
      since_ = now;
    }
    return now >= since_ + settle;
  }
  void forget() { revision_ = -1; }

 private:
  std::int64_t revision_ = -1;
  Time since_{};
};

/// Whether the holder of a name or rank lives: its lease ends later than it would without a
/// renewal. Twice, since all leases begin anew when etcd gets another leader.
class HolderWatch {
 public:
  /// `seconds_left`, rounded down, is the answer to a question of that time. That they grow again
  /// could go unseen: those of a short lease are the same all the time.
  bool lives(std::int64_t lease, std::int64_t seconds_left, Time asked, Time answered) {
    const Time latest_end = answered + std::chrono::seconds(seconds_left + 1);
    if (lease != lease_) {
      lease_ = lease;
      renewals_ = 0;
      ends_ = latest_end;
    } else if (asked + std::chrono::seconds(seconds_left) >= ends_) {
      ++renewals_;
      ends_ = latest_end;
    } else {
      ends_ = std::min(ends_, latest_end);
    }
    return renewals_ >= 2;
  }

 private:
  std::int64_t lease_ = 0;
  /// By then at the latest, if it is not renewed.
  Time ends_{};
  int renewals_ = 0;
};

}  // namespace sinew::internal::etcd
