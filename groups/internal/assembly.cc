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

// For what the ranks have to tell each other when the time of the start is over.
constexpr std::chrono::seconds kTimeToAgree{5};
// How often it is asked whether the others are still there.
constexpr std::chrono::milliseconds kLook{500};
// How long a store that ends with this process is kept for those who have not read why.
constexpr std::chrono::seconds kTimeToRead{2};
constexpr char kSeat[] = "seat/";
constexpr char kConnecting[] = "connecting/";
constexpr char kHeard[] = "heard/";
constexpr char kOpen[] = "open";
constexpr char kRefused[] = "refused:";
// Of a start that took too long, and of one that a rank gave up for another reason.
constexpr char kAbandoned[] = "abandoned:";
constexpr char kGivenUp[] = "given up:";
// A store that has seen more tries than this is broken, or is written to by a program that is no
// rank.
constexpr int kMostGenerations = 1'000'000;

std::chrono::nanoseconds left_until(Clock::TimePoint deadline) {
  return std::max<std::chrono::nanoseconds>(deadline - Clock::system().now(),
                                            std::chrono::milliseconds(1));
}

/// For one request to the store. Its server may be stopped for a while; the start tolerates that
/// until its own deadline.
StoreCallOptions patience(const AssemblyRequest& request) {
  return {std::max<std::chrono::nanoseconds>(left_until(request.deadline), kTimeToAgree)};
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

/// Those that have no such key.
std::vector<int> ranks_without(const AssemblyRequest& request, const Store& store,
                               const char* prefix) {
  std::vector<int> missing;
  for (int rank = 0; rank < request.size; ++rank) {
    if (!store.check({absl::StrCat(prefix, rank)}, patience(request))) missing.push_back(rank);
  }
  return missing;
}

std::string missing_text(const AssemblyRequest& request, const std::vector<int>& missing,
                         const char* what) {
  return absl::StrCat(rank_list(missing), " of ", request.size,
                      missing.size() == 1 ? " has not " : " have not ", what);
}

bool follows_from_others(absl::StatusCode code) {
  return code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kDeadlineExceeded;
}

/// What all ranks pass together, or none does: each arrives at it by a key of its own. Rank 0 opens
/// it once all have arrived. A rank that waits too long, or cannot go on, shuts it for all. One key
/// decides which of the two it was.
class Gate {
 public:
  struct Names {
    const char* place;
    const char* verdict;
    /// What a rank that has not come has not.
    const char* missing;
  };

  Gate(const AssemblyRequest& request, Store store, const Names& names)
      : request_(request), store_(std::move(store)), names_(names) {}

  std::string place_of(int rank) const { return absl::StrCat(names_.place, rank); }

  /// `decide`: what rank 0 says when all have arrived.
  absl::Status pass(const std::function<std::string()>& decide) const {
    try {
      if (request_.rank == 0) {
        std::vector<std::string> places;
        for (int rank = 0; rank < request_.size; ++rank) places.push_back(place_of(rank));
        if (wait_for(places)) shut(decide());
      }
      wait_for({names_.verdict});
      return end_with(store_.get(names_.verdict, patience(request_)));
    } catch (const RpcError& error) {
      return error.code() == ErrorCode::kDeadlineExceeded
                 ? end_with(shut(absl::StrCat(kAbandoned, late_text())))
                 : give_up(to_status(std::current_exception()));
    }
  }

  /// This rank cannot come. Returns why there is no group: its own reason, unless that may well be
  /// what follows from another rank's.
  absl::Status give_up(const absl::Status& why) const {
    const std::string own =
        absl::StrCat(why.code() == absl::StatusCode::kDeadlineExceeded ? kAbandoned : kGivenUp,
                     "rank ", request_.rank, " has given up the start of the group '",
                     request_.group, "': ", std::string(why.message()));
    const std::string verdict = shut(own);
    const absl::Status status = end_with(verdict);
    return verdict == own || !follows_from_others(why.code()) ? why : status;
  }

  /// OK: no rank has shut it.
  absl::Status look() const {
    if (!store_.check({names_.verdict}, patience(request_))) return absl::OkStatus();
    return status_of(store_.get(names_.verdict, patience(request_)));
  }

 private:
  /// False: a rank has shut it before. Throws kDeadlineExceeded, or the error of the request's
  /// `health`.
  bool wait_for(const std::vector<std::string>& keys) const {
    for (;;) {
      const std::chrono::nanoseconds left = left_until(request_.deadline);
      try {
        store_.wait(keys, {std::min<std::chrono::nanoseconds>(left, kLook)});
        return true;
      } catch (const RpcError& error) {
        if (error.code() != ErrorCode::kDeadlineExceeded || left <= kLook) throw;
      }
      const absl::Status health = request_.health ? request_.health() : absl::OkStatus();
      if (!health.ok()) throw_error(health);
      // Who cannot go on does not come to where rank 0 waits.
      if (!look().ok()) return false;
    }
  }

  /// The verdict.
  std::string shut(const std::string& verdict) const {
    return store_.compare_set(names_.verdict, "", verdict, patience(request_));
  }

  std::string late_text() const {
    const std::vector<int> missing = ranks_without(request_, store_, names_.place);
    return absl::StrCat("the start of the group '", request_.group, "' has taken too long: ",
                        missing.empty()
                            ? "rank 0 did not open it"
                            : missing_text(request_, missing, names_.missing) + request_.hint);
  }

  /// What this rank has read, which it tells.
  absl::Status end_with(const std::string& verdict) const {
    const absl::Status status = status_of(verdict);
    if (status.ok()) return status;
    if (request_.rank != request_.store_server) {
      try {
        store_.set(absl::StrCat(kHeard, request_.rank), "", {kTimeToAgree});
      } catch (const RpcError&) {
        // The store may end as soon as it knows that, before it has answered.
      }
      return status;
    }
    // The program may end with this error, and the store with it.
    std::vector<std::string> heard;
    for (int rank = 0; rank < request_.size; ++rank) {
      if (rank == request_.rank || !store_.check({absl::StrCat(kSeat, rank)}, patience(request_)))
        continue;
      heard.push_back(absl::StrCat(kHeard, rank));
    }
    try {
      store_.wait(heard, {kTimeToRead});
    } catch (const RpcError&) {
      // Who has not read it is gone, or stands still.
    }
    return status;
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
  const Names& names_;
};

constexpr Gate::Names kMeeting{kSeat, "verdict", "come"};
constexpr Gate::Names kConnection{"connected/", "connection", "connected with all others"};

/// What rank 0 says of the ranks that have arrived.
std::string verdict_of(const AssemblyRequest& request, const Store& store) {
  std::vector<int> differ;
  std::string terms;
  for (int rank = 0; rank < request.size; ++rank) {
    const Seat seat = unsealed(store.get(absl::StrCat(kSeat, rank), patience(request)));
    if (seat.terms == request.terms) continue;
    differ.push_back(rank);
    terms = seat.terms;
  }
  if (differ.empty()) return kOpen;
  return absl::StrCat(kRefused, "rank 0 starts the group '", request.group, "' with ",
                      request.terms, "; ", rank_list(differ), " with ", terms);
}

/// Of an error that came from the store, maybe.
absl::Status explained(const AssemblyRequest& request, const absl::Status& error) {
  if (!request.store_server || !follows_from_others(error.code())) return error;
  return absl::Status(
      error.code(),
      absl::StrFormat("rank %d, which serves the store of the group '%s', %s: %s",
                      *request.store_server, request.group,
                      error.code() == absl::StatusCode::kUnavailable ? "cannot be reached any more"
                                                                     : "does not answer",
                      error.message()));
}

}  // namespace

absl::StatusOr<Store> assemble(const AssemblyRequest& request) {
  const Seat own{absl::StrFormat("%016x", random_secret()), request.terms};
  const Store meeting = request.store.with_prefix(absl::StrCat("group/", request.group, "/"));
  try {
    for (int number = 0; number < kMostGenerations; ++number) {
      const Store store = meeting.with_prefix(absl::StrCat(number, "/"));
      const Gate gate(request, store, kMeeting);
      if (store.check({kMeeting.verdict}, patience(request)) ||
          unsealed(
              store.compare_set(gate.place_of(request.rank), "", sealed(own), patience(request)))
                  .who != own.who) {
        if (Clock::system().now() >= request.deadline) break;
        continue;
      }
      const absl::Status met = gate.pass([&] {
        if (request.on_all_there) request.on_all_there();
        return verdict_of(request, store);
      });
      if (!met.ok()) return met;
      return store;
    }
  } catch (const RpcError&) {
    return explained(request, to_status(std::current_exception()));
  }
  return absl::DeadlineExceededError(absl::StrCat("the start of the group '", request.group,
                                                  "' found no seat for rank ", request.rank));
}

absl::Status connect_together(const AssemblyRequest& request, const Store& store,
                              const std::function<void(const Health& health)>& connect) {
  const Gate gate(request, store, kConnection);
  try {
    store.set(absl::StrCat(kConnecting, request.rank), "", patience(request));
    absl::Status failure;
    try {
      connect([&request, &gate] {
        const absl::Status health = request.health ? request.health() : absl::OkStatus();
        return health.ok() ? gate.look() : health;
      });
    } catch (...) {
      failure = to_status(std::current_exception());
    }
    if (failure.ok()) {
      store.set(gate.place_of(request.rank), "", patience(request));
      return gate.pass([] { return kOpen; });
    }
    const std::vector<int> missing = ranks_without(request, store, kConnecting);
    if (failure.code() == absl::StatusCode::kDeadlineExceeded && !missing.empty()) {
      failure = absl::DeadlineExceededError(missing_text(request, missing, "begun to connect"));
    }
    return gate.give_up(failure);
  } catch (const RpcError&) {
    return explained(request, to_status(std::current_exception()));
  }
}

}  // namespace sinew::internal
