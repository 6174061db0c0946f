#include "sinew/rpc/membership/etcd/places.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/worker_name.h"

namespace sinew::internal::etcd {
namespace {

constexpr std::size_t kMaxDetailsBytes = 65536;
constexpr std::size_t kMaxJobBytes = 256;

// The places of answers to look_request().
enum Look { kWaits, kJob, kMembers, kWaiting, kRanks, kName, kReturning, kRank };

const pb::RangeResponse& range_of(const pb::TxnResponse& seen, int index) {
  return index < seen.responses_size() ? seen.responses(index).response_range()
                                       : pb::RangeResponse::default_instance();
}

// Nothing but this job is under the prefix.
void add_alone(const Layout& layout, pb::TxnRequest& txn) {
  add(txn, is_absent(layout.prefix(), layout.root()));
  add(txn, is_absent(end_of_prefix(layout.root()), end_of_prefix(layout.prefix())));
}

absl::Status not_alone(const Layout& layout, const pb::TxnResponse& seen) {
  std::string key;
  for (const pb::ResponseOp& response : seen.responses()) {
    if (!response.response_range().kvs().empty()) key = response.response_range().kvs(0).key();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "under ", layout.prefix(), " etcd has keys of another job, or of something else (\"",
      printable(key, 256),
      "\"): give each job a prefix of its own, or delete what is left over (`etcdctl del --prefix ",
      layout.prefix(), "`)"));
}

std::int32_t position_of(const Layout& layout, const pb::RangeResponse& waiting,
                         const WorkerInfo& self) {
  std::int64_t since = 0;
  for (const KeyValue& kv : waiting.kvs()) {
    if (kv.key() == layout.waits(self)) since = kv.create_revision();
  }
  return static_cast<std::int32_t>(
      std::count_if(waiting.kvs().begin(), waiting.kvs().end(),
                    [&](const KeyValue& kv) { return kv.create_revision() < since; }));
}

// The lowest free ranks are for those who have waited longer. Rank 0 is the founder's, who gets it
// back when it asks for it.
std::int32_t free_rank(const Layout& layout, const pb::RangeResponse& ranks, std::int32_t skipped) {
  std::set<std::int32_t> taken;
  for (const KeyValue& kv : ranks.kvs()) {
    if (const auto rank = layout.parse_rank(kv.key()); rank.has_value()) taken.insert(*rank);
  }
  for (std::int32_t rank = 1;; ++rank) {
    if (taken.count(rank) == 0 && skipped-- == 0) return rank;
  }
}

absl::Status check_job(const Wanted& wanted, const KeyValue& kv) {
  proto::EtcdJob job;
  const bool is_ours = job.ParseFromString(kv.value()) && job.format() == 1;
  if (!is_ours || job.job() != wanted.job) {
    return absl::FailedPreconditionError(absl::StrCat(
        "etcd's key \"", kv.key(), "\" is of another program, or of another version of Sinew"));
  }
  if (job.world_size() == wanted.world_size) return absl::OkStatus();
  const auto shown = [](std::int32_t size) {
    return size == 0 ? std::string("open membership") : absl::StrCat("a world size of ", size);
  };
  return absl::InvalidArgumentError(absl::StrCat("job '", wanted.job, "' at etcd has ",
                                                 shown(job.world_size()), ", and this worker ",
                                                 shown(wanted.world_size)));
}

}  // namespace

absl::Status check(const Wanted& wanted) {
  const WorkerInfo& worker = wanted.self.worker;
  if (absl::Status status = validate_worker_name(worker.name); !status.ok()) return status;
  if (wanted.job.empty() || wanted.job.size() > kMaxJobBytes ||
      absl::StrContains(wanted.job, '/')) {
    return absl::InvalidArgumentError(
        absl::StrCat("a job's name over etcd has 1 to ", kMaxJobBytes, " bytes and no slash"));
  }
  if (worker.incarnation.value == 0 || wanted.world_size < 0 ||
      (wanted.world_size > 0 && (worker.rank < 0 || worker.rank >= wanted.world_size))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "worker '", worker.name, "' has rank ", worker.rank, " in a world of ", wanted.world_size));
  }
  if (wanted.self.details.size() > kMaxDetailsBytes) {
    return absl::InvalidArgumentError(absl::StrCat("what worker '", worker.name,
                                                   "' tells about itself has more than ",
                                                   kMaxDetailsBytes, " bytes"));
  }
  return absl::OkStatus();
}

pb::TxnRequest look_request(const Layout& layout, const Wanted& wanted, std::int64_t lease) {
  const WorkerInfo& worker = wanted.self.worker;
  pb::TxnRequest txn;
  add_alone(layout, txn);
  // In the order of Look.
  add_success(txn, put(layout.waits(worker), worker.name, lease));
  add_success(txn, get(layout.job()));
  add_success(txn, get(layout.members(), end_of_prefix(layout.members()), true, 1));
  add_success(txn, get(layout.waiting(), end_of_prefix(layout.waiting()), true));
  add_success(txn, get(layout.ranks(), end_of_prefix(layout.ranks()), true));
  add_success(txn, get(layout.name(worker.name)));
  add_success(txn, get(layout.returning(), {}, true));
  if (worker.rank >= 0) add_success(txn, get(layout.rank(worker.rank)));
  add_failure(txn, get(layout.prefix(), layout.root(), true, 1));
  add_failure(txn, get(end_of_prefix(layout.root()), end_of_prefix(layout.prefix()), true, 1));
  return txn;
}

Place find_place(const Layout& layout, const Wanted& wanted, const pb::TxnResponse& seen) {
  const WorkerInfo& worker = wanted.self.worker;
  if (!seen.succeeded()) return not_alone(layout, seen);
  const auto& job = range_of(seen, kJob).kvs();
  const auto& name = range_of(seen, kName).kvs();
  const auto& rank = range_of(seen, kRank).kvs();
  // An answer that was lost.
  if (!name.empty() && name[0].value() == Layout::to_hex(worker.incarnation)) return Placed{};
  const bool is_empty = range_of(seen, kMembers).kvs().empty();
  Claim claim;
  claim.job_revision = job.empty() ? 0 : job[0].mod_revision();
  if (is_empty && !wanted.founds) return NotFounded{};
  if (!is_empty) {
    if (job.empty()) return NotFounded{};
    if (absl::Status status = check_job(wanted, job[0]); !status.ok()) return status;
  }
  if (!name.empty()) {
    return Held{name[0].lease(), absl::StrCat("there is a worker '", worker.name, "' already")};
  }
  if (!rank.empty()) {
    return Held{rank[0].lease(), absl::StrCat("another worker has rank ", worker.rank)};
  }
  if (!is_empty && !range_of(seen, kReturning).kvs().empty()) return Returning{};
  claim.rank = worker.rank >= 0 ? worker.rank
               : is_empty       ? 0
                                : free_rank(layout, range_of(seen, kRanks),
                                            position_of(layout, range_of(seen, kWaiting), worker));
  claim.founds = is_empty;
  if (is_empty && claim.job_revision != 0) return Empty{claim};
  return claim;
}

pb::TxnRequest claim_request(const Layout& layout, const Wanted& wanted, const Claim& claim,
                             std::int64_t lease) {
  registry::Record self = wanted.self;
  self.worker.rank = claim.rank;
  const std::string id = Layout::to_hex(self.worker.incarnation);
  const std::string members_end = end_of_prefix(layout.members());
  pb::TxnRequest txn;
  add_alone(layout, txn);
  add(txn, is_unchanged(layout.job(), claim.job_revision));
  add(txn, is_absent(layout.name(self.worker.name)));
  add(txn, is_absent(layout.rank(claim.rank)));
  if (claim.founds) {
    add(txn, is_absent(layout.members(), members_end));
    // What an earlier job has left.
    for (const char* folder : {"entries/", "list/complete", "list/gathers/", "list/gone/",
                               "list/reports/", "list/returning"}) {
      const std::string key = layout.root() + folder;
      add_success(txn, remove(key, end_of_prefix(key)));
    }
    add_success(txn,
                put(layout.job(), encode_job(wanted.job, wanted.world_size, wanted.instance), 0));
  } else {
    add(txn, is_there(layout.members(), members_end));
    add(txn, is_absent(layout.returning()));
  }
  add_success(txn, put(layout.member(self.worker.incarnation), encode_member(self), lease));
  add_success(txn, put(layout.name(self.worker.name), id, lease));
  add_success(txn, put(layout.rank(claim.rank), id, lease));
  add_success(txn, remove(layout.waits(wanted.self.worker)));
  return txn;
}

pb::TxnRequest return_request(const Layout& layout, const registry::Record& self,
                              const std::string& job, bool founds, std::int64_t lease) {
  const Incarnation incarnation = self.worker.incarnation;
  pb::TxnRequest txn;
  add(txn, is_absent(layout.gone(incarnation)));
  add(txn, is_absent(layout.member(incarnation)));
  add(txn, is_absent(layout.name(self.worker.name)));
  add(txn, is_absent(layout.rank(self.worker.rank)));
  if (founds) {
    add(txn, is_absent(layout.job()));
    add_success(txn, put(layout.job(), job, 0));
  } else {
    pb::Compare same = is_there(layout.job());
    same.set_result(pb::Compare::EQUAL);
    same.set_target(pb::Compare::VALUE);
    same.set_value(job);
    add(txn, std::move(same));
  }
  const std::string id = Layout::to_hex(incarnation);
  add_success(txn, put(layout.member(incarnation), encode_member(self), lease));
  add_success(txn, put(layout.name(self.worker.name), id, lease));
  add_success(txn, put(layout.rank(self.worker.rank), id, lease));
  add_success(txn, put(layout.returning(), id, lease));
  add_failure(txn, get(layout.gone(incarnation)));
  add_failure(txn, get(layout.member(incarnation)));
  add_failure(txn, get(layout.job()));
  return txn;
}

std::optional<std::string> why_out(const registry::Record& self, const std::string& job,
                                   const pb::TxnResponse& seen, bool& lost_all) {
  const auto& gone = range_of(seen, 0).kvs();
  const auto& member = range_of(seen, 1).kvs();
  const auto& there = range_of(seen, 2).kvs();
  lost_all = there.empty();
  if (!gone.empty()) {
    proto::EtcdGone value;
    return value.ParseFromString(gone[0].value()) ? value.reason()
                                                  : "another worker has reported it";
  }
  if (!member.empty()) return std::nullopt;
  if (lost_all) return std::nullopt;
  if (there[0].value() != job) return "the job was founded anew meanwhile";
  return absl::StrCat("while etcd was away its name '", self.worker.name, "' or rank ",
                      self.worker.rank, " became another worker's");
}

pb::TxnRequest gone_request(const Layout& layout, const registry::Record& member, Gone why,
                            const std::string& reason, Incarnation stays, std::int64_t lease) {
  const Incarnation id = member.worker.incarnation;
  const pb::RequestOp note = put(layout.gone(id), encode_gone(why, reason), lease);
  pb::TxnRequest txn;
  add(txn, is_absent(layout.gone(id)));
  if (stays.value != 0) add(txn, is_absent(layout.gone(stays)));
  add(txn, is_there(layout.member(id)));
  add_success(txn, note);
  // Its name and rank are its own as long as that is there.
  add_success(txn, remove(layout.member(id)));
  add_success(txn, remove(layout.name(member.worker.name)));
  add_success(txn, remove(layout.rank(member.worker.rank)));
  if (stays.value != 0) return txn;
  pb::TxnRequest without_keys;
  add(without_keys, is_absent(layout.gone(id)));
  add_success(without_keys, note);
  pb::RequestOp nested;
  *nested.mutable_request_txn() = std::move(without_keys);
  add_failure(txn, std::move(nested));
  return txn;
}

}  // namespace sinew::internal::etcd
