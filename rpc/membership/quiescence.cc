#include "sinew/rpc/membership/quiescence.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr nanoseconds kFirstRound = milliseconds(1);
constexpr nanoseconds kLongestRound = milliseconds(100);

using Round = std::vector<std::string>;

// "active/started"; the empty string stands for a lost worker.
std::optional<CallCounts> parse_counts(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '/');
  CallCounts counts;
  const bool fits = parts.size() == 2 && absl::SimpleAtoi(parts[0], &counts.active) &&
                    absl::SimpleAtoi(parts[1], &counts.started);
  return fits ? std::make_optional(counts) : std::nullopt;
}

class Quiescence : public std::enable_shared_from_this<Quiescence> {
 public:
  Quiescence(GatherRound gather, std::vector<std::string> names, std::function<CallCounts()> counts,
             nanoseconds timeout, Scheduler& scheduler)
      : gather_(std::move(gather)),
        names_(std::move(names)),
        counts_(std::move(counts)),
        timeout_(timeout),
        scheduler_(scheduler),
        deadline_(deadline_after(scheduler.now(), timeout)),
        done_(scheduler.executor()) {
    std::sort(names_.begin(), names_.end());
    names_.erase(std::unique(names_.begin(), names_.end()), names_.end());
  }

  Future<void> future() const { return done_.future(); }

  void next_round() {
    const nanoseconds left = deadline_ - scheduler_.now();
    if (left <= nanoseconds(0)) return give_up();
    const CallCounts now = counts_();
    gather_(names_, absl::StrCat(now.active, "/", now.started),
            deadline_ == Scheduler::TimePoint::max() ? nanoseconds::max() : left)
        .on_done([self = shared_from_this()](const Future<Round>& round) {
          if (const std::exception_ptr error = round.error()) {
            self->done_.try_set_error(error);
          } else {
            self->on_round(round.value());
          }
        });
  }

 private:
  // All workers get the same rounds, so all decide the same and no worker waits for one that has
  // left.
  void on_round(const Round& round) {
    const bool is_quiet = std::all_of(round.begin(), round.end(), [](const std::string& text) {
      const std::optional<CallCounts> counts = parse_counts(text);
      return text.empty() || (counts && counts->active == 0);
    });
    if (is_quiet && round == before_) {
      done_.try_set_value();
      return;
    }
    before_ = is_quiet ? round : Round();
    last_ = round;
    if (is_quiet) return next_round();
    const Scheduler::TimePoint when = std::min(deadline_, deadline_after(scheduler_.now(), pause_));
    pause_ = std::min(pause_ * 2, kLongestRound);
    scheduler_.run_at(when, [self = shared_from_this()] {
      self->scheduler_.runner()->post([self] { self->next_round(); });
    });
  }

  void give_up() {
    std::string text;
    for (std::size_t i = 0; i < last_.size(); ++i) {
      const std::optional<CallCounts> counts = parse_counts(last_[i]);
      if (!counts || counts->active == 0) continue;
      absl::StrAppend(&text, text.empty() ? "" : ", ", "'", names_[i], "' has ", counts->active);
    }
    done_.try_set_error(
        RpcError(ErrorCode::kDeadlineExceeded,
                 absl::StrCat("calls are still active after ",
                              absl::FormatDuration(absl::FromChrono(timeout_)), ": ",
                              text.empty() ? "more and more are made" : text)));
  }

  const GatherRound gather_;
  std::vector<std::string> names_;
  const std::function<CallCounts()> counts_;
  const nanoseconds timeout_;
  Scheduler& scheduler_;
  const Scheduler::TimePoint deadline_;
  const Promise<void> done_;
  // Touched by one round after the other.
  Round before_;
  Round last_;
  nanoseconds pause_ = kFirstRound;
};

}  // namespace

Future<void> wait_for_quiescence_async(GatherRound gather, std::vector<std::string> names,
                                       std::function<CallCounts()> counts, nanoseconds timeout,
                                       Scheduler& scheduler) {
  const auto quiescence = std::make_shared<Quiescence>(std::move(gather), std::move(names),
                                                       std::move(counts), timeout, scheduler);
  quiescence->next_round();
  return quiescence->future();
}

}  // namespace sinew::internal
