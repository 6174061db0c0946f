#include "sinew/groups/internal/assembly.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "sinew/groups/internal/call_signature.h"
#include "sinew/groups/internal/store_timeout.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/ids.h"

namespace sinew::internal {
namespace {

constexpr std::chrono::seconds kStoreTime{5};
// How often it is asked whether the others are still there.
constexpr std::chrono::milliseconds kLook{500};
constexpr char kVerdict[] = "verdict";
constexpr char kOpen[] = "open";
constexpr char kRefused[] = "refused:";
// Of a start that took too long, and of one that a rank gave up for another reason.
constexpr char kAbandoned[] = "abandoned:";
constexpr char kGivenUp[] = "given up:";
// A store that has seen more tries than that has lost its mind, or somebody plays with it.
constexpr int kMostGenerations = 1'000'000;

std::string seat_of(int rank) { return absl::StrCat("seat/", rank); }

std::chrono::nanoseconds left_until(Clock::TimePoint deadline) {
  return std::max<std::chrono::nanoseconds>(deadline - Clock::system().now(),
                                            std::chrono::milliseconds(1));
}

/// A seat's value: who sits there, and the terms.
struct Seat {
  std::string who;
  std::string terms;
};
std::string sealed(const Seat& seat) { return absl::StrCat(seat.who, "\n", seat.terms); }
Seat unsealed(const std::string& text) {
  const std::size_t line = text.find('\n');
  if (line == std::string::npos) return {text, ""};
  return {text.substr(0, line), text.substr(line + 1)};
}

class Generation {
 public:
  Generation(const AssemblyRequest& request, Store store)
      : request_(request), store_(std::move(store)) {}

  /// Rank 0 decides when all are there; the others wait for that.
  absl::Status meet() {
    try {
      if (request_.rank == 0) {
        std::vector<std::string> seats;
        for (int rank = 0; rank < request_.size; ++rank) seats.push_back(seat_of(rank));
        wait_for(seats);
        if (request_.on_all_there) request_.on_all_there();
        store_.compare_set(kVerdict, "", verdict(), {kStoreTime});
      }
      wait_for({kVerdict});
      return status_of(store_.get(kVerdict, {kStoreTime}));
    } catch (const RpcError& error) {
      if (error.code() == ErrorCode::kDeadlineExceeded) return abandon();
      const absl::Status why = to_status(std::current_exception());
      const std::string text =
          absl::StrCat("rank ", request_.rank, " has given up the start of the group '",
                       request_.group, "': ", std::string(why.message()));
      store_.compare_set(kVerdict, "", absl::StrCat(kGivenUp, text), {kStoreTime});
      return why;
    }
  }

 private:
  /// Throws kDeadlineExceeded, or what the request's health is.
  void wait_for(const std::vector<std::string>& keys) const {
    for (;;) {
      const std::chrono::nanoseconds left = left_until(request_.deadline);
      try {
        return store_.wait(keys, {std::min<std::chrono::nanoseconds>(left, kLook)});
      } catch (const RpcError& error) {
        if (error.code() != ErrorCode::kDeadlineExceeded || left <= kLook) throw;
      }
      const absl::Status health = request_.health ? request_.health() : absl::OkStatus();
      if (!health.ok()) throw_error(health);
    }
  }

  std::string verdict() const {
    std::vector<int> differ;
    std::string terms;
    for (int rank = 0; rank < request_.size; ++rank) {
      const Seat seat = unsealed(store_.get(seat_of(rank), {kStoreTime}));
      if (seat.terms == request_.terms) continue;
      differ.push_back(rank);
      terms = seat.terms;
    }
    if (differ.empty()) return kOpen;
    return absl::StrCat(kRefused, "rank 0 starts the group '", request_.group, "' with ",
                        request_.terms, "; ", rank_list(differ), " with ", terms);
  }

  absl::Status abandon() const {
    std::vector<int> missing;
    for (int rank = 0; rank < request_.size; ++rank) {
      if (!store_.check({seat_of(rank)}, {kStoreTime})) missing.push_back(rank);
    }
    const std::string text =
        missing.empty()
            ? absl::StrCat("the start of the group '", request_.group,
                           "' has taken too long: rank 0 did not open it")
            : absl::StrCat("the start of the group '", request_.group,
                           "' has taken too long: ", rank_list(missing), " of ", request_.size,
                           missing.size() == 1 ? " has not come" : " have not come");
    return status_of(
        store_.compare_set(kVerdict, "", absl::StrCat(kAbandoned, text), {kStoreTime}));
  }

  static absl::Status status_of(const std::string& verdict) {
    absl::string_view text = verdict;
    if (text == kOpen) return absl::OkStatus();
    if (absl::ConsumePrefix(&text, kAbandoned)) {
      return absl::DeadlineExceededError(printable({text.data(), text.size()}));
    }
    if (absl::ConsumePrefix(&text, kGivenUp)) {
      return absl::UnavailableError(printable({text.data(), text.size()}));
    }
    absl::ConsumePrefix(&text, kRefused);
    return absl::InvalidArgumentError(printable({text.data(), text.size()}));
  }

  const AssemblyRequest& request_;
  const Store store_;
};

}  // namespace

absl::StatusOr<Store> assemble(const AssemblyRequest& request) {
  const Seat own{absl::StrFormat("%016x", random_secret()), request.terms};
  const Store meeting = request.store.with_prefix(absl::StrCat("group/", request.group, "/"));
  try {
    for (int number = 0; number < kMostGenerations; ++number) {
      const Store store = meeting.with_prefix(absl::StrCat(number, "/"));
      const bool is_over = store.check({kVerdict}, {kStoreTime});
      if (is_over ||
          unsealed(store.compare_set(seat_of(request.rank), "", sealed(own), {kStoreTime})).who !=
              own.who) {
        if (Clock::system().now() >= request.deadline) break;
        continue;
      }
      const absl::Status met = Generation(request, store).meet();
      if (!met.ok()) return met;
      return store;
    }
  } catch (const RpcError&) {
    return to_status(std::current_exception());
  }
  return absl::DeadlineExceededError(absl::StrCat("the start of the group '", request.group,
                                                  "' found no seat for rank ", request.rank));
}

}  // namespace sinew::internal
