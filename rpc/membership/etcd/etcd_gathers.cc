#include "sinew/rpc/membership/etcd/etcd_gathers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal::etcd {
namespace {

using Clock = std::chrono::steady_clock;

// 1 MiB of the caller, and what this library adds: etcd takes requests of 1.5 MiB, with all that is
// in them.
constexpr std::size_t kMaxValueBytes = (std::size_t{1} << 20) + 1024;
constexpr std::size_t kMaxKeyBytes = 1024;

std::int64_t seconds(Time time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time).count();
}

std::string shown(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 8;
  const std::size_t some = std::min(names.size(), kShown);
  return absl::StrCat(
      "'", absl::StrJoin(names.begin(), names.begin() + some, "', '"), "'",
      names.size() > some ? absl::StrCat(" and ", names.size() - some, " more") : "");
}

/// The last parts of the keys, which come sorted.
std::vector<std::string> last_parts(const pb::RangeResponse& range) {
  std::vector<std::string> parts;
  for (const KeyValue& kv : range.kvs()) parts.push_back(kv.key().substr(kv.key().rfind('/') + 1));
  return parts;
}

std::vector<std::string> without(const std::vector<std::string>& all,
                                 const std::vector<std::string>& some) {
  std::vector<std::string> rest;
  std::set_difference(all.begin(), all.end(), some.begin(), some.end(), std::back_inserter(rest));
  return rest;
}

}  // namespace

struct EtcdGathers::Gather {
  std::string id;
  std::string key;
  std::vector<std::string> names;
  std::string value;
  Time timeout{};
  Clock::time_point deadline;
  Then then;
  /// As seen last.
  std::vector<std::string> missing;
  bool is_being_written = false;
  bool is_to_be_written_again = false;
};

void EtcdGathers::set_self(const std::string& name, std::int64_t lease) {
  self_ = name;
  if (std::exchange(lease_, lease) != lease) look_again();
}

void EtcdGathers::enter(const std::string& key, std::vector<std::string> names, std::string value,
                        Time timeout, Then then) {
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  if (!names.empty() && !std::binary_search(names.begin(), names.end(), self_)) {
    return then(absl::InvalidArgumentError(
        absl::StrCat("worker '", self_, "' is not in gather '", key, "'")));
  }
  if (value.size() > kMaxValueBytes || key.size() > kMaxKeyBytes) {
    return then(absl::InvalidArgumentError(
        absl::StrCat("a gather over etcd has a key of at most ", kMaxKeyBytes,
                     " bytes, and values of at most ", kMaxValueBytes, " together")));
  }
  auto gather = std::make_shared<Gather>();
  gather->id = gather_id(names, key);
  gather->key = key;
  gather->names = std::move(names);
  gather->value = std::move(value);
  gather->timeout = timeout;
  gather->deadline = Clock::now() + timeout;
  gather->missing = without(gather->names, {self_});
  gather->then = std::move(then);
  if (!gathers_.emplace(gather->id, gather).second) {
    return gather->then(
        absl::InvalidArgumentError(absl::StrCat("gather '", key, "' is under way already")));
  }
  client_.run_after(timeout, [this, weak = std::weak_ptr<Gather>(gather)] {
    const GatherPtr late = weak.lock();
    if (late == nullptr || gathers_.count(late->id) == 0) return;
    take_back(*late);
    finish(late, in_time(*late));
  });
  write_entry(std::move(gather));
}

absl::Status EtcdGathers::in_time(const Gather& gather) const {
  if (!away_.ok()) return absl::DeadlineExceededError(std::string(away_.message()));
  return absl::DeadlineExceededError(
      absl::StrCat(gather.missing.empty() ? "etcd has not told how many" : shown(gather.missing),
                   " had not come to gather '", gather.key, "' after ",
                   absl::FormatDuration(absl::FromChrono(gather.timeout))));
}

void EtcdGathers::write_entry(GatherPtr gather) {
  // One at a time: answers come in the order of what they tell.
  if (std::exchange(gather->is_being_written, true)) {
    gather->is_to_be_written_again = true;
    return;
  }
  const std::string entries = layout_.entries(gather->id);
  const std::string names = layout_.name("");
  pb::TxnRequest txn;
  add(txn, is_absent(layout_.gather(gather->id)));
  add_success(txn, put(layout_.entry(gather->id, self_), gather->value, lease_));
  add_success(txn, get(entries, end_of_prefix(entries), true));
  add_success(txn, get(names, end_of_prefix(names), true));
  add_failure(txn, get(layout_.gather(gather->id)));
  client_.call(std::move(txn), gather->deadline - Clock::now(),
               [this, gather](absl::StatusOr<pb::TxnResponse> seen) {
                 gather->is_being_written = false;
                 const auto found = gathers_.find(gather->id);
                 if (found == gathers_.end() || found->second != gather) return;
                 const bool again = std::exchange(gather->is_to_be_written_again, false);
                 if (again) return write_entry(gather);
                 // The lease has ended: there will be another one, or an end.
                 if (seen.status().code() == absl::StatusCode::kNotFound) return;
                 if (!seen.ok()) return finish(gather, seen.status());
                 looked(gather, *seen);
               });
}

void EtcdGathers::looked(const GatherPtr& gather, const pb::TxnResponse& seen) {
  if (!seen.succeeded()) {
    const auto& kvs = seen.responses(0).response_range().kvs();
    if (!kvs.empty()) on_end({gather->id, kvs[0].value()});
    return;
  }
  const std::vector<std::string> come = last_parts(seen.responses(1).response_range());
  const std::vector<std::string> members = last_parts(seen.responses(2).response_range());
  const std::vector<std::string>& names = gather->names.empty() ? members : gather->names;
  gather->missing = without(names, come);
  // Who are all is known when all are back.
  if (gather->names.empty() && is_returning_) return;
  if (gather->missing.empty()) return complete(gather, names);
  const std::vector<std::string> absent = without(gather->missing, members);
  if (absent.empty() || is_returning_) return;
  proto::EtcdGatherEnd end;
  end.set_code(static_cast<int>(absl::StatusCode::kUnavailable));
  end.set_message(absl::StrCat("worker ", shown(absent),
                               " is not in the job any more, and had not come to gather '",
                               printable(gather->key, kMaxKeyBytes), "'"));
  conclude(gather, std::move(end));
}

void EtcdGathers::complete(GatherPtr gather, std::vector<std::string> names) {
  const std::string entries = layout_.entries(gather->id);
  client_.list(
      entries, end_of_prefix(entries), gather->deadline - Clock::now(),
      [this, gather, names = std::move(names)](absl::StatusOr<EtcdClient::Listing> list) {
        // Its own time ends it.
        if (!list.ok()) return;
        std::map<std::string, std::string> values;
        for (KeyValue& kv : list->kvs) {
          values[kv.key().substr(kv.key().rfind('/') + 1)] = std::move(*kv.mutable_value());
        }
        proto::EtcdGatherEnd end;
        for (const std::string& name : names) {
          const auto value = values.find(name);
          // Gone meanwhile: the code that sees that looks again.
          if (value == values.end()) return;
          end.add_values(std::move(value->second));
        }
        if (end.ByteSizeLong() > kMaxValueBytes) {
          end.Clear();
          end.set_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
          end.set_message(absl::StrCat(
              "the values of gather '", printable(gather->key, kMaxKeyBytes), "' have more than ",
              kMaxValueBytes, " bytes together, which etcd does not take"));
        }
        conclude(gather, std::move(end));
      });
}

void EtcdGathers::conclude(GatherPtr gather, proto::EtcdGatherEnd end) {
  pb::LeaseGrantRequest grant;
  // For those who were away when it ended.
  grant.set_ttl(end.code() == 0 ? 4 * seconds(lease_time_) : seconds(lease_time_));
  client_.call(std::move(grant), gather->deadline - Clock::now(),
               [this, gather, end = std::move(end)](absl::StatusOr<pb::LeaseGrantResponse> lease) {
                 if (!lease.ok()) return;
                 const std::string entries = layout_.entries(gather->id);
                 pb::TxnRequest txn;
                 add(txn, is_absent(layout_.gather(gather->id)));
                 add_success(txn,
                             put(layout_.gather(gather->id), end.SerializeAsString(), lease->id()));
                 add_success(txn, remove(entries, end_of_prefix(entries)));
                 // The watch tells all what has become of it.
                 client_.call(std::move(txn), gather->deadline - Clock::now(), [](const auto&) {});
               });
}

void EtcdGathers::on_end(const GatherNews& news) {
  const auto found = gathers_.find(news.id);
  if (found == gathers_.end()) return;
  const GatherPtr gather = found->second;
  proto::EtcdGatherEnd end;
  if (!end.ParseFromString(news.end)) {
    return finish(gather, absl::DataLossError(absl::StrCat("what etcd has of gather '", gather->key,
                                                           "' cannot be understood")));
  }
  if (end.code() != 0) {
    return finish(gather, absl::Status(static_cast<absl::StatusCode>(end.code()), end.message()));
  }
  finish(gather, std::vector<std::string>(end.values().begin(), end.values().end()));
}

void EtcdGathers::look_again() {
  for (const auto& [id, gather] : std::map<std::string, GatherPtr>(gathers_)) write_entry(gather);
}

void EtcdGathers::take_back(const Gather& gather) {
  pb::TxnRequest txn;
  add(txn, is_absent(layout_.gather(gather.id)));
  add_success(txn, remove(layout_.entry(gather.id, self_)));
  client_.call(std::move(txn), lease_time_, [](const auto&) {});
}

void EtcdGathers::fail(const std::string& worker, const absl::Status& why) {
  for (const auto& [id, gather] : std::map<std::string, GatherPtr>(gathers_)) {
    if (!std::binary_search(gather->names.begin(), gather->names.end(), worker)) continue;
    take_back(*gather);
    finish(gather, why);
  }
}

void EtcdGathers::fail_all(const absl::Status& why) {
  for (const auto& [id, gather] : std::map<std::string, GatherPtr>(gathers_)) {
    take_back(*gather);
    finish(gather, why);
  }
}

void EtcdGathers::set_away(const absl::Status& why) {
  away_ = why;
  if (why.ok()) return;
  for (const auto& [id, gather] : std::map<std::string, GatherPtr>(gathers_)) {
    if (gather->names.empty()) continue;
    take_back(*gather);
    finish(gather, why);
  }
}

void EtcdGathers::finish(const GatherPtr& gather, absl::StatusOr<std::vector<std::string>> result) {
  if (gathers_.erase(gather->id) > 0) gather->then(std::move(result));
}

}  // namespace sinew::internal::etcd
