#include "sinew/rpc/planes/same_host/meeting_place.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/planes/same_host/meeting_socket.h"

namespace sinew::internal {
namespace {

using TimePoint = std::chrono::steady_clock::time_point;

// For a visitor that finds no host, or too many before it.
constexpr auto kRetryInterval = std::chrono::milliseconds(10);

}  // namespace

/// Touched by one thread at a time.
struct MeetingPlace::Meeting {
  Meeting(MeetingTerms with_terms, OnMet then)
      : terms(std::move(with_terms)), on_met(std::move(then)) {}

  using Outcome = std::optional<absl::StatusOr<MetPeer>>;
  /// Does what can be done now. Nothing: it goes on.
  Outcome go_on(TimePoint now) {
    if (listener.valid()) {
      if (absl::Status status = admit(); !status.ok()) return status;
    } else if (is_outside()) {
      if (absl::Status status = come(); !status.ok()) return status;
    }
    for (auto greeting = greetings.begin(); greeting != greetings.end();) {
      absl::StatusOr<std::optional<MetPeer>> met = greeting->go_on(terms);
      if (met.ok() && met->has_value()) return **std::move(met);
      if (met.ok()) {
        ++greeting;
        continue;
      }
      // This was another process; the right one may still come.
      if (!listener.valid()) return met.status();
      refusal = met.status();
      greeting = greetings.erase(greeting);
    }
    if (now >= deadline) return overdue();
    return std::nullopt;
  }

  absl::Status admit() {
    for (std::size_t i = 0; i < kMaxVisitors; ++i) {
      absl::StatusOr<std::optional<FileDescriptor>> socket = accept_at(listener);
      if (!socket.ok()) return socket.status();
      if (!socket->has_value()) break;
      absl::StatusOr<Greeting> greeting = Greeting::begin(terms, **std::move(socket));
      if (!greeting.ok()) {
        refusal = greeting.status();
        continue;
      }
      if (greetings.size() == kMaxVisitors) greetings.pop_front();
      greetings.push_back(*std::move(greeting));
    }
    return absl::OkStatus();
  }

  absl::Status come() {
    absl::StatusOr<std::optional<FileDescriptor>> socket = connect_to_place(place);
    if (!socket.ok()) return socket.status();
    if (!socket->has_value()) return absl::OkStatus();
    absl::StatusOr<Greeting> greeting = Greeting::begin(terms, **std::move(socket));
    if (!greeting.ok()) return greeting.status();
    greetings.push_back(*std::move(greeting));
    return absl::OkStatus();
  }

  /// A visitor who has not been able to come. The host may have gone because the connection has,
  /// which this end will hear of: so it goes on trying until then.
  bool is_outside() const { return !listener.valid() && greetings.empty(); }

  absl::Status overdue() const {
    if (!refusal.ok()) return refusal;
    if (is_outside()) {
      return absl::UnavailableError(
          "no process is at the peer's Unix socket; it may be in another network namespace");
    }
    return absl::UnavailableError(listener.valid()
                                      ? "the peer did not come to the Unix socket in time"
                                      : "the peer said nothing at its Unix socket in time");
  }

  /// When to look again, though nothing has arrived.
  TimePoint next_look(TimePoint now) const {
    return is_outside() ? std::min(deadline, now + kRetryInterval) : deadline;
  }

  const MeetingTerms terms;
  OnMet on_met;
  Ticket ticket = 0;
  TimePoint deadline;
  /// The host has a listener, the visitor a place to go to.
  FileDescriptor listener;
  std::string place;
  std::deque<Greeting> greetings;
  /// Of the last one that did not belong here.
  absl::Status refusal;
};

/// What the thread works on. Outlives it.
class MeetingPlace::Loop {
 public:
  enum class Thread { kRuns, kIsNeeded };
  struct Added {
    Ticket ticket = 0;
    /// Whether a thread has to call run() now.
    Thread thread = Thread::kRuns;
  };
  /// kUnavailable when it takes no more.
  absl::StatusOr<Added> add(std::unique_ptr<Meeting> meeting) {
    MutexLock lock(mutex_);
    if (!wake_.valid()) wake_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!wake_.valid() || open_ == kMaxMeetings) {
      return absl::UnavailableError("no room for another meeting at a Unix socket");
    }
    ++open_;
    const Ticket ticket = meeting->ticket = ++last_ticket_;
    arriving_.push_back(std::move(meeting));
    wake_locked();
    return Added{ticket, std::exchange(runs_, true) ? Thread::kRuns : Thread::kIsNeeded};
  }
  void cancel(Ticket ticket) {
    MutexLock lock(mutex_);
    if (!runs_) return;
    cancelled_.push_back(ticket);
    wake_locked();
  }
  void stop() {
    MutexLock lock(mutex_);
    stopped_ = true;
    if (wake_.valid()) wake_locked();
  }
  /// There is no thread to be had. What has arrived is dropped.
  void give_up() {
    std::vector<std::unique_ptr<Meeting>> dropped;
    MutexLock lock(mutex_);
    runs_ = false;
    dropped.swap(arriving_);
    open_ -= dropped.size();
  }

  void run() {
    std::vector<std::unique_ptr<Meeting>> meetings;
    while (take_in(meetings)) {
      const TimePoint now = std::chrono::steady_clock::now();
      std::vector<std::unique_ptr<Meeting>> open;
      for (std::unique_ptr<Meeting>& meeting : meetings) {
        Meeting::Outcome outcome = meeting->go_on(now);
        if (outcome.has_value()) {
          end(std::move(meeting), *std::move(outcome));
        } else {
          open.push_back(std::move(meeting));
        }
      }
      meetings = std::move(open);
      if (!meetings.empty()) sleep(meetings);
    }
  }

 private:
  void wake_locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const std::uint64_t one = 1;
    // Fails for a full counter only, which wakes as well.
    [[maybe_unused]] const auto written = ::write(wake_.number(), &one, sizeof one);
  }

  /// Also ends those that were cancelled. False: there are none left, and run() ends.
  bool take_in(std::vector<std::unique_ptr<Meeting>>& meetings) {
    std::vector<Ticket> cancelled;
    bool stopped = false;
    {
      MutexLock lock(mutex_);
      std::move(arriving_.begin(), arriving_.end(), std::back_inserter(meetings));
      arriving_.clear();
      cancelled.swap(cancelled_);
      stopped = stopped_;
      if (meetings.empty()) {
        runs_ = false;
        return false;
      }
      std::uint64_t count = 0;
      [[maybe_unused]] const auto taken = ::read(wake_.number(), &count, sizeof count);
    }
    const auto is_over = [&](const std::unique_ptr<Meeting>& meeting) {
      return stopped || std::count(cancelled.begin(), cancelled.end(), meeting->ticket) > 0;
    };
    const auto over = std::stable_partition(meetings.begin(), meetings.end(), std::not_fn(is_over));
    std::vector<std::unique_ptr<Meeting>> ended(std::make_move_iterator(over),
                                                std::make_move_iterator(meetings.end()));
    meetings.erase(over, meetings.end());
    for (std::unique_ptr<Meeting>& meeting : ended) {
      end(std::move(meeting), absl::CancelledError("the meeting was called off"));
    }
    return true;
  }

  void end(std::unique_ptr<Meeting> meeting, absl::StatusOr<MetPeer> outcome) {
    {
      MutexLock lock(mutex_);
      --open_;
    }
    OnMet on_met = std::move(meeting->on_met);
    // Its sockets go first: the end of the meeting is the end of them.
    meeting.reset();
    std::move(on_met)(std::move(outcome));
  }

  void sleep(const std::vector<std::unique_ptr<Meeting>>& meetings) {
    const TimePoint now = std::chrono::steady_clock::now();
    TimePoint until = TimePoint::max();
    std::vector<pollfd> all;
    {
      MutexLock lock(mutex_);
      all.push_back({wake_.number(), POLLIN, 0});
    }
    for (const std::unique_ptr<Meeting>& meeting : meetings) {
      until = std::min(until, meeting->next_look(now));
      if (meeting->listener.valid()) all.push_back({meeting->listener.number(), POLLIN, 0});
      for (const Greeting& greeting : meeting->greetings) {
        all.push_back({greeting.socket(), POLLIN, 0});
      }
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now);
    ::poll(all.data(), all.size(), static_cast<int>(std::max<std::int64_t>(0, left.count())));
  }

  Mutex mutex_;
  FileDescriptor wake_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Meeting>> arriving_ ABSL_GUARDED_BY(mutex_);
  std::vector<Ticket> cancelled_ ABSL_GUARDED_BY(mutex_);
  Ticket last_ticket_ ABSL_GUARDED_BY(mutex_) = 0;
  std::size_t open_ ABSL_GUARDED_BY(mutex_) = 0;
  bool runs_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

MeetingPlace::MeetingPlace(std::chrono::milliseconds timeout)
    : timeout_(timeout), loop_(std::make_shared<Loop>()) {}

MeetingPlace::~MeetingPlace() {
  loop_->stop();
  MutexLock lock(mutex_);
  if (!thread_.joinable()) return;
  // A callback may let go of the last connection, and with it of this.
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

absl::StatusOr<MeetingPlace::Hosted> MeetingPlace::host(MeetingTerms terms, OnMet on_met) {
  auto meeting = std::make_unique<Meeting>(std::move(terms), std::move(on_met));
  const std::string place = new_challenge();
  static_assert(kPlaceBytes == kChallengeBytes);
  absl::StatusOr<FileDescriptor> listener = listen_at(place);
  if (!listener.ok()) return listener.status();
  meeting->listener = *std::move(listener);
  const absl::StatusOr<Ticket> ticket = add(std::move(meeting));
  if (!ticket.ok()) return ticket.status();
  return Hosted{*ticket, place};
}

absl::StatusOr<MeetingPlace::Ticket> MeetingPlace::visit(absl::string_view place,
                                                         MeetingTerms terms, OnMet on_met) {
  auto meeting = std::make_unique<Meeting>(std::move(terms), std::move(on_met));
  meeting->place = std::string(place);
  return add(std::move(meeting));
}

absl::StatusOr<MeetingPlace::Ticket> MeetingPlace::add(std::unique_ptr<Meeting> meeting) {
  meeting->deadline = std::chrono::steady_clock::now() + timeout_;
  MutexLock lock(mutex_);
  const absl::StatusOr<Loop::Added> added = loop_->add(std::move(meeting));
  if (!added.ok()) return added.status();
  if (added->thread == Loop::Thread::kRuns) return added->ticket;
  // The one before has nothing more to do.
  if (thread_.joinable()) thread_.join();
  try {
    thread_ = std::thread([loop = loop_] {
      pthread_setname_np(pthread_self(), "sinew-meet");
      loop->run();
    });
  } catch (const std::system_error& error) {
    loop_->give_up();
    return absl::UnavailableError(absl::StrCat("no thread for a meeting: ", error.what()));
  }
  return added->ticket;
}

void MeetingPlace::cancel(Ticket ticket) {
  if (ticket != 0) loop_->cancel(ticket);
}

}  // namespace sinew::internal
