#include "sinew/groups/internal/store_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

constexpr std::size_t kMostNamedKeys = 8;
constexpr std::size_t kMostShownKeyBytes = 128;
// A year is longer than anybody waits, and far from where sums of times overflow.
constexpr std::uint64_t kMaxTimeoutMs = 24ull * 3600 * 1000 * 365;

std::string shown(const std::string& key) {
  return absl::StrCat("'", printable(key, kMostShownKeyBytes), "'");
}

proto::StoreReply value_reply(std::string value) {
  proto::StoreReply reply;
  reply.set_value(std::move(value));
  return reply;
}

proto::StoreReply number_reply(std::int64_t number) {
  proto::StoreReply reply;
  reply.set_number(number);
  return reply;
}

bool waits(proto::StoreRequest::Kind kind) {
  return kind == proto::StoreRequest::GET || kind == proto::StoreRequest::WAIT;
}

}  // namespace

absl::Status missing_keys_error(const std::vector<std::string>& missing) {
  std::vector<std::string> names;
  for (const std::string& key : missing) {
    if (names.size() == kMostNamedKeys) break;
    names.push_back(shown(key));
  }
  const std::string more = missing.size() > names.size()
                               ? absl::StrFormat(" and %d more", missing.size() - names.size())
                               : std::string();
  return absl::DeadlineExceededError(absl::StrCat("the store still lacks ",
                                                  missing.size() == 1 ? "the key " : "the keys ",
                                                  absl::StrJoin(names, ", "), more));
}

proto::StoreReply reply_of(const absl::Status& status) {
  proto::StoreReply reply;
  reply.set_code(static_cast<std::uint32_t>(status.code()));
  reply.set_error(std::string(status.message()));
  return reply;
}

absl::Status status_of(const proto::StoreReply& reply) {
  if (reply.code() == 0) return absl::OkStatus();
  const auto highest = static_cast<std::uint32_t>(absl::StatusCode::kUnauthenticated);
  const auto code = reply.code() <= highest ? static_cast<absl::StatusCode>(reply.code())
                                            : absl::StatusCode::kUnknown;
  return absl::Status(code, printable(reply.error()));
}

std::vector<StoreTable::Answer> StoreTable::handle(WaiterId id, const proto::StoreRequest& request,
                                                   Clock::TimePoint now) {
  std::vector<Answer> answers;
  const absl::Status fits = check(request);
  if (!fits.ok()) {
    answers.push_back({id, reply_of(fits)});
    return answers;
  }
  if (!waits(request.kind())) {
    proto::StoreReply reply = apply(request, answers);
    answers.insert(answers.begin(), {id, std::move(reply)});
    return answers;
  }
  Waiter waiter;
  waiter.wants_value = request.kind() == proto::StoreRequest::GET;
  waiter.first_key = request.keys(0);
  for (const std::string& key : request.keys()) {
    if (!values_.contains(key) && waiter.missing.insert(key).second) waiter.bytes += key.size();
  }
  if (waiter.missing.empty()) {
    answers.push_back(
        {id, waiter.wants_value ? value_reply(values_.at(waiter.first_key)) : proto::StoreReply()});
  } else if (request.timeout_ms() == 0) {
    answers.push_back(
        {id, reply_of(missing_keys_error({waiter.missing.begin(), waiter.missing.end()}))});
  } else if (waiters_.size() >= limits_.max_waiters ||
             waiting_bytes_ + waiter.bytes > limits_.max_waiting_bytes) {
    answers.push_back({id, reply_of(absl::ResourceExhaustedError(absl::StrFormat(
                               "%d waits for keys of %d bytes are under way already; the store "
                               "takes %d and %d bytes",
                               waiters_.size(), waiting_bytes_, limits_.max_waiters,
                               limits_.max_waiting_bytes)))});
  } else {
    waiter.deadline =
        now + std::chrono::milliseconds(std::min(request.timeout_ms(), kMaxTimeoutMs));
    for (const std::string& key : waiter.missing) waiting_for_[key].insert(id);
    deadlines_.emplace(waiter.deadline, id);
    waiting_bytes_ += waiter.bytes;
    waiters_.insert_or_assign(id, std::move(waiter));
  }
  return answers;
}

absl::Status StoreTable::check(const proto::StoreRequest& request) const {
  const bool is_list =
      request.kind() == proto::StoreRequest::WAIT || request.kind() == proto::StoreRequest::CHECK;
  if (!proto::StoreRequest::Kind_IsValid(request.kind()) ||
      request.kind() == proto::StoreRequest::UNSPECIFIED) {
    return absl::UnimplementedError("the store does not know that request");
  }
  if (request.kind() == proto::StoreRequest::COUNT_KEYS) return absl::OkStatus();
  if (request.keys().empty() || (!is_list && request.keys_size() != 1)) {
    return absl::InvalidArgumentError("a request of a store has one key, or more to wait for");
  }
  if (static_cast<std::size_t>(request.keys_size()) > limits_.max_keys_of_a_wait) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d keys were asked for at once; the store takes %d at most",
                        request.keys_size(), limits_.max_keys_of_a_wait));
  }
  for (const std::string& key : request.keys()) {
    if (key.empty()) return absl::InvalidArgumentError("a key of a store must not be empty");
    if (key.size() > limits_.max_key_bytes) {
      return absl::InvalidArgumentError(
          absl::StrFormat("the key %s has %d bytes; %d are the most that a store takes", shown(key),
                          key.size(), limits_.max_key_bytes));
    }
  }
  for (const std::string* value : {&request.value(), &request.expected()}) {
    if (value->size() <= limits_.max_value_bytes) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("a value for %s has %d bytes; %d are the most that a store takes",
                        shown(request.keys(0)), value->size(), limits_.max_value_bytes));
  }
  return absl::OkStatus();
}

proto::StoreReply StoreTable::apply(const proto::StoreRequest& request,
                                    std::vector<Answer>& answers) {
  const std::string no_key;
  const std::string& key = request.keys().empty() ? no_key : request.keys(0);
  const auto found = values_.find(key);
  switch (request.kind()) {
    case proto::StoreRequest::SET:
      return reply_of(put(key, request.value(), answers));
    case proto::StoreRequest::ADD:
      return add(key, request.amount(), answers);
    case proto::StoreRequest::CHECK: {
      const bool all = std::all_of(request.keys().begin(), request.keys().end(),
                                   [&](const std::string& each) { return values_.contains(each); });
      return number_reply(all ? 1 : 0);
    }
    case proto::StoreRequest::COMPARE_SET: {
      if (found == values_.end() && !request.expected().empty()) {
        return value_reply(request.expected());
      }
      if (found != values_.end() && found->second != request.expected()) {
        return value_reply(found->second);
      }
      const absl::Status set = put(key, request.value(), answers);
      return set.ok() ? value_reply(request.value()) : reply_of(set);
    }
    case proto::StoreRequest::DELETE: {
      if (found == values_.end()) return number_reply(0);
      used_bytes_ -= found->first.size() + found->second.size();
      values_.erase(found);
      return number_reply(1);
    }
    default:
      return number_reply(static_cast<std::int64_t>(values_.size()));
  }
}

absl::Status StoreTable::put(const std::string& key, const std::string& value,
                             std::vector<Answer>& answers) {
  const auto found = values_.find(key);
  const std::size_t freed = found == values_.end() ? 0 : key.size() + found->second.size();
  const std::size_t used = used_bytes_ - freed + key.size() + value.size();
  if (used > limits_.max_bytes || (found == values_.end() && values_.size() >= limits_.max_keys)) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("the store is full: it has %d keys of %d and %d bytes of %d; delete keys "
                        "that are not needed",
                        values_.size(), limits_.max_keys, used_bytes_, limits_.max_bytes));
  }
  used_bytes_ = used;
  values_.insert_or_assign(key, value);
  wake(key, answers);
  return absl::OkStatus();
}

proto::StoreReply StoreTable::add(const std::string& key, std::int64_t amount,
                                  std::vector<Answer>& answers) {
  std::int64_t number = 0;
  const auto found = values_.find(key);
  if (found != values_.end() && !absl::SimpleAtoi(found->second, &number)) {
    return reply_of(absl::InvalidArgumentError(
        absl::StrCat("the value of ", shown(key), " is no number: nothing can be added to it")));
  }
  std::int64_t sum = 0;
  if (__builtin_add_overflow(number, amount, &sum)) {
    return reply_of(absl::OutOfRangeError(absl::StrCat(
        "the sum of ", number, " and ", amount, " at ", shown(key), " does not fit 64 bits")));
  }
  const absl::Status set = put(key, absl::StrCat(sum), answers);
  return set.ok() ? number_reply(sum) : reply_of(set);
}

void StoreTable::wake(const std::string& key, std::vector<Answer>& answers) {
  const auto found = waiting_for_.find(key);
  if (found == waiting_for_.end()) return;
  const std::set<WaiterId> ids = std::move(found->second);
  waiting_for_.erase(found);
  for (const WaiterId id : ids) {
    const auto waiter = waiters_.find(id);
    waiter->second.missing.erase(key);
    if (!waiter->second.missing.empty()) continue;
    // A key that was there may have been deleted meanwhile: a WAIT has seen it all the same, and a
    // GET has one key only, this one.
    answers.push_back(
        {id, waiter->second.wants_value ? value_reply(values_.at(key)) : proto::StoreReply()});
    unpark(waiter);
  }
}

void StoreTable::unpark(std::map<WaiterId, Waiter>::iterator waiter) {
  for (const std::string& key : waiter->second.missing) {
    const auto found = waiting_for_.find(key);
    found->second.erase(waiter->first);
    if (found->second.empty()) waiting_for_.erase(found);
  }
  deadlines_.erase({waiter->second.deadline, waiter->first});
  waiting_bytes_ -= waiter->second.bytes;
  waiters_.erase(waiter);
}

std::vector<StoreTable::Answer> StoreTable::expire(Clock::TimePoint now) {
  std::vector<Answer> answers;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const auto waiter = waiters_.find(deadlines_.begin()->second);
    const std::set<std::string>& missing = waiter->second.missing;
    answers.push_back(
        {waiter->first, reply_of(missing_keys_error({missing.begin(), missing.end()}))});
    unpark(waiter);
  }
  return answers;
}

std::optional<Clock::TimePoint> StoreTable::next_expiry() const {
  if (deadlines_.empty()) return std::nullopt;
  return deadlines_.begin()->first;
}

void StoreTable::forget(WaiterId id) {
  const auto found = waiters_.find(id);
  if (found != waiters_.end()) unpark(found);
}

std::vector<StoreTable::Answer> StoreTable::fail_all(const absl::Status& reason) {
  std::vector<Answer> answers;
  for (const auto& [id, waiter] : waiters_) answers.push_back({id, reply_of(reason)});
  waiters_.clear();
  waiting_bytes_ = 0;
  waiting_for_.clear();
  deadlines_.clear();
  return answers;
}

}  // namespace sinew::internal
