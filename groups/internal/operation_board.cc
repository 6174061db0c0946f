#include "sinew/groups/internal/operation_board.h"

#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

constexpr std::chrono::milliseconds kStoreTime{500};
// A store that did not answer is not asked again before.
constexpr std::chrono::seconds kPause{10};
// For others to read why the group has ended.
constexpr std::chrono::seconds kTimeToRead{2};
const char kEndKey[] = "end";

std::string key_of(int rank) { return absl::StrCat("at/", rank); }

std::string read_key_of(int rank) { return absl::StrCat("read/", rank); }

std::string bytes_of(std::uint64_t number, const std::vector<std::int64_t>& numbers) {
  std::string bytes(sizeof number * (1 + numbers.size()), '\0');
  std::memcpy(bytes.data(), &number, sizeof number);
  std::memcpy(bytes.data() + sizeof number, numbers.data(), sizeof number * numbers.size());
  return bytes;
}

/// A reason as text, with its code.
std::string sealed(const absl::Status& reason) {
  return absl::StrCat(static_cast<int>(reason.code()), ":", std::string(reason.message()));
}

absl::Status unsealed_end(const std::string& text) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits(':', 1));
  int code = 0;
  if (!absl::SimpleAtoi(parts.first, &code) || code <= 0 ||
      code > static_cast<int>(absl::StatusCode::kUnauthenticated)) {
    code = static_cast<int>(absl::StatusCode::kUnknown);
  }
  return absl::Status(static_cast<absl::StatusCode>(code), printable(parts.second));
}

}  // namespace

template <class T, class F>
T OperationBoard::ask(T otherwise, F f) const {
  if (!store_.valid() || Clock::system().now() < asks_again_.load()) return otherwise;
  try {
    return f();
  } catch (const RpcError&) {
    asks_again_.store(Clock::system().now() + kPause);
    return otherwise;
  }
}

void OperationBoard::publish(std::uint64_t number, const CallSignature& signature) const {
  ask(0, [&] {
    store_.set(key_of(rank_), bytes_of(number, signature.encode(size_)), {kStoreTime});
    return 0;
  });
}

std::vector<std::optional<OperationBoard::Entry>> OperationBoard::read() const {
  std::vector<std::optional<Entry>> entries(static_cast<std::size_t>(size_));
  const std::size_t count = CallSignature::encoded_count(size_);
  for (int rank = 0; rank < size_; ++rank) {
    if (!store_.check({key_of(rank)}, {kStoreTime})) continue;
    const std::string bytes = store_.get(key_of(rank), {kStoreTime});
    Entry entry;
    if (bytes.size() != sizeof entry.number * (1 + count)) continue;
    std::memcpy(&entry.number, bytes.data(), sizeof entry.number);
    entry.numbers.resize(count);
    std::memcpy(entry.numbers.data(), bytes.data() + sizeof entry.number,
                sizeof entry.number * count);
    entries[static_cast<std::size_t>(rank)] = std::move(entry);
  }
  return entries;
}

absl::Status OperationBoard::check_agreement(std::uint64_t number, const CallSignature& own) const {
  return ask(absl::OkStatus(), [&] {
    const std::vector<std::optional<Entry>> entries = read();
    SignaturesByRank signatures;
    for (int rank = 0; rank < size_; ++rank) {
      const std::optional<Entry>& entry = entries[static_cast<std::size_t>(rank)];
      if (!entry || entry->number != number) continue;
      signatures[rank] = CallSignature::decode(entry->numbers.data(), size_);
    }
    // As the others see it: not all of a long shape is written.
    signatures[rank_] = CallSignature::decode(own.encode(size_).data(), size_);
    return internal::check_agreement(signatures);
  });
}

std::vector<int> OperationBoard::missing_ranks(std::uint64_t number) const {
  return ask(std::vector<int>(), [&] {
    const std::vector<std::optional<Entry>> entries = read();
    std::vector<int> missing;
    for (int rank = 0; rank < size_; ++rank) {
      const std::optional<Entry>& entry = entries[static_cast<std::size_t>(rank)];
      if (!entry || entry->number < number) missing.push_back(rank);
    }
    return missing;
  });
}

absl::Status OperationBoard::agree_on_end(const absl::Status& reason) const {
  {
    MutexLock lock(mutex_);
    if (!end_.ok()) return end_;
  }
  return ask(reason, [&] {
    return keep_end(unsealed_end(store_.compare_set(kEndKey, "", sealed(reason), {kStoreTime})));
  });
}

absl::Status OperationBoard::end() const {
  return ask(absl::OkStatus(), [&] {
    if (!store_.check({kEndKey}, {kStoreTime})) return absl::OkStatus();
    return keep_end(unsealed_end(store_.get(kEndKey, {kStoreTime})));
  });
}

absl::Status OperationBoard::keep_end(const absl::Status& reason) const {
  {
    MutexLock lock(mutex_);
    end_ = reason;
  }
  return ask(reason, [&] {
    store_.set(read_key_of(rank_), "", {kStoreTime});
    return reason;
  });
}

void OperationBoard::await_readers(const std::vector<int>& ranks) const {
  std::vector<std::string> keys;
  for (const int rank : ranks) keys.push_back(read_key_of(rank));
  ask(0, [&] {
    store_.wait(keys, {kTimeToRead});
    return 0;
  });
}

}  // namespace sinew::internal
