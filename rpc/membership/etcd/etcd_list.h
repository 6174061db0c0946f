#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "sinew/rpc/membership/etcd/etcd_options.h"
#include "sinew/rpc/membership/etcd/layout.h"
#include "sinew/rpc/membership/registry/loss_judge.h"

namespace sinew::internal::etcd {

using registry::MemberNews;

/// To be written at etcd: that member is lost permanently. Not if `stays` (0: no member) is lost
/// itself.
struct SayGone {
  registry::Record member;
  Gone why = Gone::kUnknown;
  std::string reason;
  Incarnation stays;
};
/// This worker's key is gone. `is_out`: that is for good; else etcd was away, and it may come back.
struct SelfGone {
  bool is_out = false;
  Gone why = Gone::kUnknown;
  std::string reason;
};
struct GatherNews {
  std::string id;
  std::string end;
};
using ListEffects = std::vector<std::variant<MemberNews, SayGone, SelfGone, GatherNews>>;

/// The list of members as etcd's keys under `list/` tell it. Pure.
///
/// A member whose key is gone is lost. A worker that sees that writes it to etcd: then the member
/// is lost permanently, and learns it. The exception is after etcd was away: then leases may have
/// ended while their owners live. For one lease from then on those whose keys are gone stay on the
/// list, and may write them again.
class EtcdList {
 public:
  struct Options {
    Incarnation self;
    Time lease{};
    /// How long two must say that they have lost each other.
    Time judge{};
  };

  /// `renewed`: when this worker's lease was asked for.
  EtcdList(const Layout& layout, const Options& options, Time renewed)
      : layout_(layout),
        options_(options),
        renewed_(renewed),
        losses_(options.judge, options.lease) {}

  /// All keys of `list/`, at first and when what came after was not to be had.
  ListEffects reset(const std::vector<KeyValue>& kvs, Time now);
  ListEffects apply(const std::vector<Event>& events, Time now);
  /// etcd has answered what was sent then by renewing the lease, or by a new one.
  void renewed(Time sent, Time now);
  /// This worker has written its keys again, at that revision.
  void returned(std::int64_t revision) { returned_ = revision; }
  ListEffects tick(Time now);

  /// Leases may have ended meanwhile: others' were renewed as this one was.
  bool is_away(Time now) const { return now > renewed_ + 2 * options_.lease / 3; }
  /// Keys that are missing may still come back.
  bool is_returning(Time now) const { return now < returning_until_ || is_away(now); }
  const std::map<Incarnation, registry::Record>& members() const { return members_; }
  const registry::Record* find(const std::string& name) const;
  const registry::Record* self() const;
  /// All ranks of a fixed world have been there, or are.
  bool is_complete() const { return world_names_.has_value(); }
  /// Who had been there by then, by rank; nullopt: it is not complete.
  const std::optional<std::vector<std::string>>& world_names() const { return world_names_; }
  bool has_all_ranks(std::int32_t world_size) const;
  /// The latest value of `list/job`.
  const std::string& job() const { return job_; }

 private:
  void put(const KeyValue& kv, Time now, ListEffects& out);
  void erase(const KeyValue& kv, Time now, ListEffects& out);
  void put_member(const Layout::Part& part, const std::string& value, ListEffects& out);
  void erase_member(Incarnation id, Time now, ListEffects& out);
  void put_gone(Incarnation id, ListEffects& out);
  void note_gone(const KeyValue& kv);
  void drop(Incarnation id, Gone why, const std::string& reason, ListEffects& out);
  void lose(Incarnation id, ListEffects& out);
  void judge(Time now, ListEffects& out);

  const Layout layout_;
  const Options options_;
  Time renewed_;
  Time returning_until_ = Time::min();
  std::int64_t returned_ = 0;
  std::string job_;
  std::optional<std::vector<std::string>> world_names_;
  std::map<Incarnation, registry::Record> members_;
  /// Of these, whose keys are gone.
  std::set<Incarnation> missing_;
  /// Who is out, and why, for as long as etcd says so.
  std::map<Incarnation, std::pair<Gone, std::string>> gone_;
  /// Who was told to be gone: never taken back.
  std::map<Incarnation, registry::Record> told_;
  registry::LossJudge losses_;
  std::map<Incarnation, Time> judged_;
};

}  // namespace sinew::internal::etcd
