#include "sinew/rpc/membership/etcd/layout.h"

#include <openssl/sha.h>

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/worker_name.h"

namespace sinew::internal::etcd {
namespace {

constexpr std::uint32_t kFormat = 1;
constexpr std::size_t kReasonBytes = 1024;

std::optional<Incarnation> from_hex(absl::string_view text) {
  Incarnation id;
  if (text.size() != 16 || !absl::SimpleHexAtoi(text, &id.value) || id.value == 0) {
    return std::nullopt;
  }
  return id;
}

}  // namespace

std::string Layout::to_hex(Incarnation id) {
  return absl::StrCat(absl::Hex(id.value, absl::kZeroPad16));
}

std::string Layout::rank(std::int32_t rank) const {
  // So that they are sorted.
  return absl::StrCat(ranks(), absl::Dec(rank, absl::kZeroPad10));
}

std::optional<std::int32_t> Layout::parse_rank(absl::string_view key) const {
  std::int32_t rank = -1;
  if (!absl::ConsumePrefix(&key, ranks()) || !absl::SimpleAtoi(key, &rank) || rank < 0) {
    return std::nullopt;
  }
  return rank;
}

Layout::Part Layout::parse(absl::string_view key) const {
  Part part;
  if (!absl::ConsumePrefix(&key, list())) return part;
  if (key == "job") {
    part.kind = Part::Kind::kJob;
  } else if (key == "complete") {
    part.kind = Part::Kind::kComplete;
  } else if (absl::ConsumePrefix(&key, "gathers/")) {
    part.kind = Part::Kind::kGather;
    part.gather = std::string(key);
  } else if (absl::ConsumePrefix(&key, "reports/")) {
    const auto from = from_hex(key.substr(0, 16));
    const auto about = from_hex(key.substr(std::min<std::size_t>(key.size(), 17)));
    if (!from.has_value() || !about.has_value()) return part;
    part = {Part::Kind::kReport, *from, *about, {}};
  } else {
    const bool is_member = absl::ConsumePrefix(&key, "members/");
    if (!is_member && !absl::ConsumePrefix(&key, "gone/")) return part;
    const auto id = from_hex(key);
    if (id.has_value()) part = {is_member ? Part::Kind::kMember : Part::Kind::kGone, *id, {}, {}};
  }
  return part;
}

std::string end_of_prefix(std::string prefix) {
  // Ours end with a slash, never with the last byte that there is.
  ++prefix.back();
  return prefix;
}

std::string gather_id(const std::vector<std::string>& names, const std::string& key) {
  // Names have no comma and no newline.
  const std::string text = absl::StrCat(absl::StrJoin(names, ","), "\n", key);
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest), sizeof digest));
}

pb::Compare is_absent(std::string key, std::string range_end) {
  pb::Compare compare;
  compare.set_result(pb::Compare::EQUAL);
  compare.set_target(pb::Compare::CREATE);
  compare.set_create_revision(0);
  compare.set_key(std::move(key));
  compare.set_range_end(std::move(range_end));
  return compare;
}

pb::Compare is_there(std::string key, std::string range_end) {
  pb::Compare compare = is_absent(std::move(key), std::move(range_end));
  compare.set_result(pb::Compare::GREATER);
  return compare;
}

pb::Compare is_unchanged(const std::string& key, std::int64_t mod_revision) {
  pb::Compare compare;
  compare.set_result(pb::Compare::EQUAL);
  compare.set_target(pb::Compare::MOD);
  compare.set_mod_revision(mod_revision);
  compare.set_key(key);
  return compare;
}

pb::RequestOp put(std::string key, std::string value, std::int64_t lease) {
  pb::RequestOp op;
  op.mutable_request_put()->set_key(std::move(key));
  op.mutable_request_put()->set_value(std::move(value));
  op.mutable_request_put()->set_lease(lease);
  return op;
}

pb::RequestOp remove(std::string key, std::string range_end) {
  pb::RequestOp op;
  op.mutable_request_delete_range()->set_key(std::move(key));
  op.mutable_request_delete_range()->set_range_end(std::move(range_end));
  return op;
}

pb::RequestOp get(std::string key, std::string range_end, bool keys_only, std::int64_t limit) {
  pb::RequestOp op;
  op.mutable_request_range()->set_key(std::move(key));
  op.mutable_request_range()->set_range_end(std::move(range_end));
  op.mutable_request_range()->set_keys_only(keys_only);
  op.mutable_request_range()->set_limit(limit);
  return op;
}

void add(pb::TxnRequest& txn, pb::Compare compare) { *txn.add_compare() = std::move(compare); }
void add_success(pb::TxnRequest& txn, pb::RequestOp op) { *txn.add_success() = std::move(op); }
void add_failure(pb::TxnRequest& txn, pb::RequestOp op) { *txn.add_failure() = std::move(op); }

std::string encode_job(const std::string& job, std::int32_t world_size,
                       const JobInstance& instance) {
  proto::EtcdJob value;
  value.set_format(kFormat);
  value.set_job(job);
  value.set_world_size(world_size);
  value.mutable_instance()->set_attempt(instance.attempt);
  value.mutable_instance()->set_time_us(instance.time_us);
  value.mutable_instance()->set_random(instance.random);
  return value.SerializeAsString();
}

std::string encode_member(const registry::Record& record) {
  proto::EtcdMember value;
  value.mutable_worker()->set_name(record.worker.name);
  value.mutable_worker()->set_rank(record.worker.rank);
  value.mutable_worker()->set_incarnation(record.worker.incarnation.value);
  value.set_details(record.details);
  return value.SerializeAsString();
}

std::string encode_gone(Gone why, const std::string& reason) {
  proto::EtcdGone value;
  value.set_why(static_cast<std::uint32_t>(why));
  value.set_reason(printable(reason, kReasonBytes));
  return value.SerializeAsString();
}

std::optional<registry::Record> decode_member(const std::string& value) {
  proto::EtcdMember member;
  if (!member.ParseFromString(value)) return std::nullopt;
  registry::Record record{
      {member.worker().name(), member.worker().rank(), Incarnation{member.worker().incarnation()}},
      member.details()};
  if (!validate_worker_name(record.worker.name).ok() || record.worker.rank < 0 ||
      record.worker.incarnation.value == 0) {
    return std::nullopt;
  }
  return record;
}

JobInstance decode_instance(const proto::EtcdJob& job) {
  return {job.instance().attempt(), job.instance().time_us(), job.instance().random()};
}

}  // namespace sinew::internal::etcd
