#include "sinew/rpc/membership/registrar/registry_codec.h"

#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "sinew/registry.pb.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/worker_name.h"
#include "sinew/rpc/membership/parse_message.h"

namespace sinew::internal {
namespace registry_codec {

using namespace registry;

// No version counts so far, no job has so many ranks.
constexpr std::uint64_t kLastCount = std::uint64_t{1} << 62;
// In microseconds, a year.
constexpr std::uint64_t kLongestLease = std::uint64_t{365} * 24 * 3600 * 1000000;
constexpr std::int32_t kLastRank = std::int32_t{1} << 30;

// A text of another worker, as it is logged or stands in errors.
std::string shown(const std::string& text) { return indented(printable(text)); }

// ---- Parts.

void encode(const WorkerInfo& worker, proto::WorkerIdentity& out) {
  out.set_name(worker.name);
  out.set_rank(worker.rank);
  out.set_incarnation(worker.incarnation.value);
}

void encode(const Record& record, proto::RegistryRecord& out) {
  encode(record.worker, *out.mutable_worker());
  out.set_details(record.details);
}

void encode(const Version& version, proto::RegistryVersion& out) {
  out.set_epoch(version.epoch);
  out.set_registrar(version.registrar.value);
  out.set_count(version.count);
}

void encode(const JobInstance& instance, proto::JobInstance& out) {
  out.set_attempt(instance.attempt);
  out.set_time_us(instance.time_us);
  out.set_random(instance.random);
}

JobInstance decode_instance(const proto::JobInstance& in) {
  return {in.attempt(), in.time_us(), in.random()};
}

void encode(const Join& join, proto::RegistryJoin& out) {
  encode(join.self, *out.mutable_self());
  out.set_job(join.job);
  out.set_world_size(join.world_size);
}

/// The first error that a decoder has found.
class Checked {
 public:
  WorkerInfo worker(const proto::WorkerIdentity& in) {
    require(validate_worker_name(in.name()));
    if (in.rank() < -1 || in.rank() > kLastRank) wrong("rank", in.rank());
    if (in.incarnation() == 0) wrong("incarnation", 0);
    return {in.name(), in.rank(), {in.incarnation()}};
  }
  Record record(const proto::RegistryRecord& in) { return {worker(in.worker()), in.details()}; }
  Version version(const proto::RegistryVersion& in) {
    if (in.epoch() > kLastEpoch) wrong("epoch", in.epoch());
    if (in.count() > kLastCount) wrong("count", in.count());
    return {in.epoch(), {in.registrar()}, in.count()};
  }
  Join join(const proto::RegistryJoin& in) {
    if (in.world_size() < 0 || in.world_size() > kLastRank) wrong("world size", in.world_size());
    return {record(in.self()), in.job(), in.world_size()};
  }
  Gone gone(std::uint32_t in) {
    return in <= static_cast<std::uint32_t>(kLastOfList) ? static_cast<Gone>(in) : Gone::kUnknown;
  }
  absl::Status status(const proto::RegistryFinished& in) {
    const bool is_code = in.code() >= 0 && in.code() <= 16;
    return {is_code ? static_cast<absl::StatusCode>(in.code()) : absl::StatusCode::kUnknown,
            shown(in.message())};
  }
  template <class Number>
  void wrong(absl::string_view what, Number number) {
    require(absl::InvalidArgumentError(
        absl::StrCat("a message of a registry has a ", what, " that cannot be: ", number)));
  }
  void require(const absl::Status& status) { first_.Update(status); }
  const absl::Status& first() const { return first_; }

 private:
  absl::Status first_;
};

// ---- Requests.

void encode(const Return& back, proto::RegistryReturn& out) {
  encode(Join{back.self, back.job, back.world_size}, *out.mutable_as());
  encode(back.instance, *out.mutable_instance());
  encode(back.version, *out.mutable_version());
  encode(back.joined, *out.mutable_joined());
  for (const WorkerInfo& worker : back.known) encode(worker, *out.add_known());
}

void encode(const Request& request, proto::RegistryRequest& out) {
  std::visit(
      [&](const auto& each) {
        using Kind = std::decay_t<decltype(each)>;
        if constexpr (std::is_same_v<Kind, Join>) {
          encode(each, *out.mutable_join());
        } else if constexpr (std::is_same_v<Kind, Return>) {
          encode(each, *out.mutable_come_back());
        } else if constexpr (std::is_same_v<Kind, Renew>) {
          encode(each.version, *out.mutable_renew());
        } else if constexpr (std::is_same_v<Kind, Leave>) {
          out.mutable_leave()->set_is_abrupt(each.is_abrupt);
        } else if constexpr (std::is_same_v<Kind, Report>) {
          out.mutable_report()->set_about(each.about.value);
          out.mutable_report()->set_reason(each.reason);
        } else if constexpr (std::is_same_v<Kind, Enter>) {
          proto::RegistryEnter& enter = *out.mutable_enter();
          enter.set_id(each.id);
          enter.set_key(each.key);
          for (const std::string& name : each.names) enter.add_names(name);
          enter.set_value(each.value);
        } else {
          out.mutable_cancel()->set_id(each.id);
        }
      },
      request);
}

Return decode(const proto::RegistryReturn& in, Checked& check) {
  const Join as = check.join(in.as());
  Return back{as.self,
              as.job,
              as.world_size,
              decode_instance(in.instance()),
              check.version(in.version()),
              check.version(in.joined()),
              {}};
  for (const proto::WorkerIdentity& worker : in.known()) back.known.push_back(check.worker(worker));
  return back;
}

Request decode(const proto::RegistryRequest& in, Checked& check) {
  using Kind = proto::RegistryRequest;
  switch (in.request_case()) {
    case Kind::kJoin:
      return check.join(in.join());
    case Kind::kComeBack:
      return decode(in.come_back(), check);
    case Kind::kRenew:
      return Renew{check.version(in.renew())};
    case Kind::kLeave:
      return Leave{in.leave().is_abrupt()};
    case Kind::kReport:
      return Report{{in.report().about()}, shown(in.report().reason())};
    case Kind::kEnter:
      return Enter{in.enter().id(),
                   in.enter().key(),
                   {in.enter().names().begin(), in.enter().names().end()},
                   in.enter().value()};
    case Kind::kCancel:
      return Cancel{in.cancel().id()};
    case Kind::REQUEST_NOT_SET:
      break;
  }
  check.wrong("request", "none");
  return Leave{};
}

// ---- Answers.

void encode(const List& list, proto::RegistryList& out) {
  encode(list.version, *out.mutable_version());
  encode(list.instance, *out.mutable_instance());
  for (const Record& member : list.members) encode(member, *out.add_members());
  out.set_is_returning(list.is_returning);
}

void encode(const Update& update, proto::RegistryUpdate& out) {
  out.set_since(update.since);
  encode(update.version, *out.mutable_version());
  for (const Change& change : update.changes) {
    proto::RegistryChange& each = *out.add_changes();
    if (change.member.worker.incarnation.value != 0) encode(change.member, *each.mutable_member());
    if (change.gone.has_value()) each.set_gone(static_cast<std::uint32_t>(*change.gone));
    each.set_reason(change.reason);
  }
}

void encode(std::uint64_t id, const absl::Status& status, const std::vector<std::string>& values,
            proto::RegistryFinished& out) {
  out.set_id(id);
  out.set_code(static_cast<int>(status.code()));
  out.set_message(std::string(status.message()));
  for (const std::string& value : values) out.add_values(value);
}

void encode(const Answer& answer, proto::RegistryAnswer& out) {
  std::visit(
      [&](const auto& each) {
        using Kind = std::decay_t<decltype(each)>;
        if constexpr (std::is_same_v<Kind, List>) {
          encode(each, *out.mutable_list());
        } else if constexpr (std::is_same_v<Kind, Update>) {
          encode(each, *out.mutable_update());
        } else if constexpr (std::is_same_v<Kind, Renewed>) {
          encode(each.version, *out.mutable_renewed());
        } else if constexpr (std::is_same_v<Kind, Wait>) {
          out.set_wait(each.why);
        } else if constexpr (std::is_same_v<Kind, Probe>) {
          out.mutable_probe();
        } else if constexpr (std::is_same_v<Kind, ComeBack>) {
          out.mutable_come_back();
        } else if constexpr (std::is_same_v<Kind, Refused>) {
          encode(0, each.why, {}, *out.mutable_refused());
        } else if constexpr (std::is_same_v<Kind, Out>) {
          out.mutable_out()->set_gone(static_cast<std::uint32_t>(each.why));
          out.mutable_out()->set_reason(each.reason);
        } else if constexpr (std::is_same_v<Kind, Finished>) {
          encode(each.id, each.status, each.values, *out.mutable_finished());
        } else {
          out.mutable_missing()->set_id(each.id);
          out.mutable_missing()->set_names(each.names);
        }
      },
      answer);
}

List decode(const proto::RegistryList& in, Checked& check) {
  List list{check.version(in.version()), decode_instance(in.instance()), {}, in.is_returning()};
  for (const proto::RegistryRecord& member : in.members()) {
    list.members.push_back(check.record(member));
    if (list.members.back().worker.rank < 0) check.wrong("rank", -1);
  }
  return list;
}

Update decode(const proto::RegistryUpdate& in, Checked& check) {
  if (in.since() > in.version().count()) check.wrong("first version", in.since());
  Update update{in.since(), check.version(in.version()), {}};
  for (const proto::RegistryChange& change : in.changes()) {
    Change& each = update.changes.emplace_back();
    if (change.has_member()) each.member = check.record(change.member());
    if (change.has_gone()) each.gone = check.gone(change.gone());
    each.reason = shown(change.reason());
  }
  return update;
}

Answer decode(const proto::RegistryAnswer& in, Checked& check) {
  using Kind = proto::RegistryAnswer;
  switch (in.answer_case()) {
    case Kind::kList:
      return decode(in.list(), check);
    case Kind::kUpdate:
      return decode(in.update(), check);
    case Kind::kRenewed:
      return Renewed{check.version(in.renewed())};
    case Kind::kWait:
      return Wait{in.wait()};
    case Kind::kProbe:
      return Probe{};
    case Kind::kComeBack:
      return ComeBack{};
    case Kind::kRefused: {
      const absl::Status why = check.status(in.refused());
      return Refused{why.ok() ? absl::UnknownError("refused without a reason") : why};
    }
    case Kind::kOut:
      return Out{check.gone(in.out().gone()), shown(in.out().reason())};
    case Kind::kFinished:
      return Finished{in.finished().id(),
                      check.status(in.finished()),
                      {in.finished().values().begin(), in.finished().values().end()}};
    case Kind::kMissing:
      return Missing{in.missing().id(), in.missing().names()};
    case Kind::ANSWER_NOT_SET:
      break;
  }
  check.wrong("answer", "none");
  return Probe{};
}

}  // namespace registry_codec

std::string encode(const AskedOfRegistrar& asked) {
  proto::RegistryRequest out;
  out.set_echo(asked.echo);
  out.set_number(asked.number);
  registry_codec::encode(asked.request, out);
  return out.SerializeAsString();
}

absl::StatusOr<AskedOfRegistrar> decode_asked(const std::string& bytes) {
  const absl::StatusOr<proto::RegistryRequest> in =
      parse_message<proto::RegistryRequest>("a RegistryRequest", bytes);
  if (!in.ok()) return in.status();
  registry_codec::Checked check;
  AskedOfRegistrar asked{in->echo(), registry_codec::decode(*in, check), in->number()};
  if (!check.first().ok()) return check.first();
  return asked;
}

std::string encode(const SaidByRegistrar& said) {
  proto::RegistryAnswers out;
  out.set_registrar(said.registrar.value);
  out.set_answered(said.answered);
  out.set_lease_us(std::chrono::duration_cast<std::chrono::microseconds>(said.lease).count());
  for (const SaidByRegistrar::Item& item : said.items) {
    proto::RegistryAnswer& answer = *out.add_answers();
    answer.set_token(item.token);
    registry_codec::encode(item.answer, answer);
  }
  return out.SerializeAsString();
}

absl::StatusOr<SaidByRegistrar> decode_said(const std::string& bytes) {
  const absl::StatusOr<proto::RegistryAnswers> in =
      parse_message<proto::RegistryAnswers>("RegistryAnswers", bytes);
  if (!in.ok()) return in.status();
  registry_codec::Checked check;
  SaidByRegistrar said;
  said.registrar = {in->registrar()};
  if (in->registrar() == 0) check.wrong("registrar", 0);
  // In nanoseconds a longer one is beyond its type.
  if (in->lease_us() == 0 || in->lease_us() > registry_codec::kLongestLease) {
    check.wrong("lease", in->lease_us());
  } else {
    said.lease = std::chrono::microseconds(in->lease_us());
  }
  said.answered = in->answered();
  for (const proto::RegistryAnswer& answer : in->answers()) {
    said.items.push_back({answer.token(), registry_codec::decode(answer, check)});
  }
  if (!check.first().ok()) return check.first();
  return said;
}

}  // namespace sinew::internal
