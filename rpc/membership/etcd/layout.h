#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "sinew/etcd_registry.pb.h"
#include "sinew/rpc/membership/etcd/etcd_methods.h"
#include "sinew/rpc/membership/registry/registry_messages.h"

namespace sinew::internal::etcd {

/// Where a job's keys lie at etcd, under <prefix>/<job>/:
///
///     list/job                        the instance, founded with the first member     EtcdJob
///     list/members/<incarnation>      a member, with its lease                        EtcdMember
///     list/complete                   all ranks of a fixed world have been there: their names
///     list/gone/<incarnation>         it is out for good                              EtcdGone
///     list/reports/<from>/<about>     two have lost each other; with the first's lease
///     list/returning                  members may still write again what etcd has ended,
///                                     for a lease
///     list/gathers/<id>               how a gather has ended, for a while EtcdGatherEnd
///     names/<name>, ranks/<rank>      who has it, with the lease of that member
///     waiting/any/<incarnation>       who waits for any rank, with its lease; `one`: for one rank
///     entries/<id>/<name>             the value of a member in a gather, with its lease
///
/// All members watch `list/`. Nothing else lies under the prefix. Pure.
class Layout {
 public:
  Layout(const std::string& prefix, const std::string& job)
      : prefix_(prefix + "/"), root_(prefix_ + job + "/") {}

  const std::string& prefix() const { return prefix_; }
  const std::string& root() const { return root_; }
  std::string list() const { return root_ + "list/"; }
  std::string job() const { return root_ + "list/job"; }
  std::string complete() const { return root_ + "list/complete"; }
  std::string returning() const { return root_ + "list/returning"; }
  std::string members() const { return root_ + "list/members/"; }
  std::string member(Incarnation id) const { return members() + to_hex(id); }
  std::string gone(Incarnation id) const { return root_ + "list/gone/" + to_hex(id); }
  std::string report(Incarnation from, Incarnation about) const {
    return root_ + "list/reports/" + to_hex(from) + "/" + to_hex(about);
  }
  std::string gather(const std::string& id) const { return root_ + "list/gathers/" + id; }
  std::string name(const std::string& name) const { return root_ + "names/" + name; }
  std::string ranks() const { return root_ + "ranks/"; }
  std::string rank(std::int32_t rank) const;
  std::string waiting() const { return root_ + "waiting/any/"; }
  std::string waits(const WorkerInfo& worker) const {
    return (worker.rank < 0 ? waiting() : root_ + "waiting/one/") + to_hex(worker.incarnation);
  }
  std::string entries(const std::string& gather) const { return root_ + "entries/" + gather + "/"; }
  std::string entry(const std::string& gather, const std::string& name) const {
    return entries(gather) + name;
  }

  /// What a key of `list/` is about.
  struct Part {
    enum class Kind : std::uint8_t { kJob, kComplete, kMember, kGone, kReport, kGather, kOther };
    Kind kind = Kind::kOther;
    Incarnation id;
    Incarnation about;
    std::string gather;
  };
  Part parse(absl::string_view key) const;
  /// Of a key of `ranks/`; nullopt: it is none.
  std::optional<std::int32_t> parse_rank(absl::string_view key) const;

  static std::string to_hex(Incarnation id);

 private:
  const std::string prefix_;
  const std::string root_;
};

/// The key behind all that begin with that.
std::string end_of_prefix(std::string prefix);
/// The same for workers of all processes: of the names and the key.
std::string gather_id(const std::vector<std::string>& names, const std::string& key);

// Parts of transactions.
pb::Compare is_absent(std::string key, std::string range_end = {});
/// At least one key of the range is there.
pb::Compare is_there(std::string key, std::string range_end = {});
pb::Compare is_unchanged(const std::string& key, std::int64_t mod_revision);
pb::RequestOp put(std::string key, std::string value, std::int64_t lease);
pb::RequestOp remove(std::string key, std::string range_end = {});
pb::RequestOp get(std::string key, std::string range_end = {}, bool keys_only = false,
                  std::int64_t limit = 0);
void add(pb::TxnRequest& txn, pb::Compare compare);
void add_success(pb::TxnRequest& txn, pb::RequestOp op);
void add_failure(pb::TxnRequest& txn, pb::RequestOp op);

// Values.
std::string encode_job(const std::string& job, std::int32_t world_size,
                       const JobInstance& instance);
std::string encode_member(const registry::Record& record);
std::string encode_gone(Gone why, const std::string& reason);
/// nullopt: that is none of ours.
std::optional<registry::Record> decode_member(const std::string& value);
JobInstance decode_instance(const proto::EtcdJob& job);

}  // namespace sinew::internal::etcd
