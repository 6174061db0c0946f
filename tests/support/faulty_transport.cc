#include "sinew/tests/support/faulty_transport.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/timer_queue.h"

namespace sinew::internal {
namespace {

class FaultyLink;

std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

/// In [0, 1).
double as_fraction(std::uint64_t bits) {
  return static_cast<double>(bits >> 11U) / static_cast<double>(std::uint64_t{1} << 53U);
}

Frame copy_of(const Frame& frame) {
  Frame copy;
  copy.envelope = frame.envelope;
  copy.payloads = frame.payloads;
  return copy;
}

class ThreadedFaultTimer final : public FaultTimer {
 public:
  void run_after(std::chrono::nanoseconds delay, absl::AnyInvocable<void() &&> task) override {
    queue_.run_at(Clock::system().now() + delay, std::move(task));
  }

 private:
  TimerQueue queue_;
};

}  // namespace

struct ManualFaultTimer::Impl {
  mutable Mutex mutex;
  std::chrono::nanoseconds now ABSL_GUARDED_BY(mutex){0};
  std::multimap<std::chrono::nanoseconds, absl::AnyInvocable<void() &&>> tasks
      ABSL_GUARDED_BY(mutex);
};

ManualFaultTimer::ManualFaultTimer() : impl_(std::make_unique<Impl>()) {}
ManualFaultTimer::~ManualFaultTimer() = default;

void ManualFaultTimer::run_after(std::chrono::nanoseconds delay,
                                 absl::AnyInvocable<void() &&> task) {
  MutexLock lock(impl_->mutex);
  impl_->tasks.emplace(impl_->now + delay, std::move(task));
}

void ManualFaultTimer::advance(std::chrono::nanoseconds time) {
  impl_->mutex.lock();
  const std::chrono::nanoseconds end = impl_->now + time;
  while (!impl_->tasks.empty() && impl_->tasks.begin()->first <= end) {
    auto due = impl_->tasks.extract(impl_->tasks.begin());
    impl_->now = due.key();
    impl_->mutex.unlock();
    std::move(due.mapped())();
    impl_->mutex.lock();
  }
  impl_->now = end;
  impl_->mutex.unlock();
}

std::size_t ManualFaultTimer::pending() const {
  MutexLock lock(impl_->mutex);
  return impl_->tasks.size();
}

std::shared_ptr<FaultTimer> make_threaded_fault_timer() {
  return std::make_shared<ThreadedFaultTimer>();
}

/// The rules and what they hold. Never calls a link with the mutex held.
struct FaultPlan::Impl {
  struct RuleState {
    FaultRule rule;
    std::uint64_t matched = 0;
  };
  struct ConnectRule {
    std::function<bool(const std::string&)> matches;
    absl::Status status;
    std::uint64_t limit;
    FaultDirection direction;
  };
  struct Held {
    std::weak_ptr<FaultyLink> link;
    FaultDirection direction;
    Lane lane;
    Frame frame;
  };
  /// What a rule decided: the rule, and the delay with its jitter.
  struct Verdict {
    RuleId id;
    FaultAction action;
    std::chrono::nanoseconds delay;
    int behind;
  };

  Impl(std::uint64_t the_seed, std::shared_ptr<FaultTimer> the_timer)
      : seed(the_seed), timer(std::move(the_timer)) {}

  std::optional<Verdict> decide(const FaultyFrame& frame) {
    MutexLock lock(mutex);
    for (auto& [id, state] : rules) {
      const FaultRule& rule = state.rule;
      if (rule.matches && !rule.matches(frame)) continue;
      const std::uint64_t match = state.matched++;
      if (match < rule.skip || hits[id] >= rule.limit) continue;
      const std::uint64_t draw = mix(mix(seed ^ mix(id)) + match);
      if (as_fraction(draw) >= rule.probability) continue;
      ++hits[id];
      changed.notify_all();
      const auto jitter = std::chrono::duration_cast<std::chrono::nanoseconds>(
          rule.jitter * as_fraction(mix(draw)));
      return Verdict{id, rule.action, rule.delay + jitter, rule.behind};
    }
    return std::nullopt;
  }

  /// The status with which a connect to (or from) the address fails; OK when it may go on.
  absl::Status decide_connect(FaultDirection direction, const std::string& address) {
    MutexLock lock(mutex);
    for (auto& [id, rule] : connect_rules) {
      if (rule.direction != direction || hits[id] >= rule.limit) continue;
      if (rule.matches && !rule.matches(address)) continue;
      ++hits[id];
      changed.notify_all();
      return rule.status;
    }
    return absl::OkStatus();
  }

  RuleId add_connect_rule(ConnectRule rule) {
    MutexLock lock(mutex);
    connect_rules.emplace(next_rule, std::move(rule));
    return next_rule++;
  }

  void run_after(std::chrono::nanoseconds delay, absl::AnyInvocable<void() &&> task) {
    std::shared_ptr<FaultTimer> used;
    {
      MutexLock lock(mutex);
      if (ended) return;
      if (timer == nullptr) timer = make_threaded_fault_timer();
      used = timer;
    }
    used->run_after(delay, std::move(task));
  }

  void hold(RuleId rule, Held frame) {
    MutexLock lock(mutex);
    held[rule].push_back(std::move(frame));
  }

  std::uint64_t add_link(const std::shared_ptr<FaultyLink>& link) {
    MutexLock lock(mutex);
    links.emplace(next_link, link);
    return next_link++;
  }

  std::vector<std::shared_ptr<FaultyLink>> live_links() {
    MutexLock lock(mutex);
    std::vector<std::shared_ptr<FaultyLink>> live;
    for (const auto& [number, link] : links) {
      if (auto alive = link.lock()) live.push_back(std::move(alive));
    }
    return live;
  }

  /// The link is down: drops what is held of it.
  void forget(const std::shared_ptr<FaultyLink>& link, std::uint64_t number) {
    std::vector<Held> dropped;
    MutexLock lock(mutex);
    links.erase(number);
    for (auto& [rule, frames] : held) {
      for (Held& frame : frames) {
        if (frame.link.lock() == link) dropped.push_back(std::move(frame));
      }
      frames.erase(std::remove_if(frames.begin(), frames.end(),
                                  [](const Held& frame) { return frame.link.expired(); }),
                   frames.end());
    }
  }

  const std::uint64_t seed;
  std::atomic<bool> frozen{false};
  mutable Mutex mutex;
  CondVar changed;
  std::shared_ptr<FaultTimer> timer ABSL_GUARDED_BY(mutex);
  bool ended ABSL_GUARDED_BY(mutex) = false;
  RuleId next_rule ABSL_GUARDED_BY(mutex) = 1;
  std::map<RuleId, RuleState> rules ABSL_GUARDED_BY(mutex);
  std::map<RuleId, ConnectRule> connect_rules ABSL_GUARDED_BY(mutex);
  std::map<RuleId, std::uint64_t> hits ABSL_GUARDED_BY(mutex);
  std::map<RuleId, std::vector<Held>> held ABSL_GUARDED_BY(mutex);
  std::uint64_t next_link ABSL_GUARDED_BY(mutex) = 1;
  std::map<std::uint64_t, std::weak_ptr<FaultyLink>> links ABSL_GUARDED_BY(mutex);
};

namespace {

using PlanImpl = FaultPlan::Impl;

/// One connection through a faulty transport: the connection that its user sees, and the handler
/// that the inner transport sees. What arrives goes through a queue that one thread at a time
/// empties, so that frames which a timer or a test lets go later do not run beside those of the
/// inner transport.
class FaultyLink final : public Connection,
                         public ConnectionHandler,
                         public std::enable_shared_from_this<FaultyLink> {
 public:
  FaultyLink(std::shared_ptr<PlanImpl> plan, std::shared_ptr<ConnectionHandler> handler,
             std::string address, bool opened_here)
      : plan_(std::move(plan)),
        address_(std::move(address)),
        opened_here_(opened_here),
        handler_(std::move(handler)) {}

  void set_number(std::uint64_t number) { number_ = number; }
  void set_inner(const std::shared_ptr<Connection>& inner) {
    MutexLock lock(mutex_);
    if (inner_ == nullptr) inner_ = inner;
  }
  const std::string& address() const { return address_; }

  // Connection.
  absl::Status send(Lane lane, Frame frame) override;
  void close(absl::Status reason) override;
  bool opened_here() const override { return opened_here_; }
  const std::string& remote_hello() const override {
    static const std::string& none = *new std::string;
    const std::shared_ptr<Connection> inner = this->inner();
    return inner == nullptr ? none : inner->remote_hello();
  }
  const AuthenticatedPeer& remote() const override {
    static const AuthenticatedPeer& nobody = *new AuthenticatedPeer;
    const std::shared_ptr<Connection> inner = this->inner();
    return inner == nullptr ? nobody : inner->remote();
  }
  std::size_t queued_bytes() const override {
    const std::shared_ptr<Connection> inner = this->inner();
    return inner == nullptr ? 0 : inner->queued_bytes();
  }

  // ConnectionHandler.
  void on_up(const std::shared_ptr<Connection>& connection) override;
  void on_frames(const std::shared_ptr<Connection>& connection, Lane lane,
                 std::vector<Frame> frames) override;
  void on_down(const std::shared_ptr<Connection>& connection, const absl::Status& reason) override;

  /// A frame that a rule lets go now.
  void resume(FaultDirection direction, Lane lane, Frame frame);
  /// Takes the connection down as the network would.
  void break_now(const std::string& why);
  /// Goes on after freeze().
  void thaw();
  /// Tells the handler what is left to tell, on_down at last, frozen or not. No callback runs
  /// afterwards.
  void finish();

 private:
  enum class Drain { kUnlessFrozen, kAlways };
  struct Arrival {
    enum class Kind { kUp, kFrames, kDown };
    Kind kind;
    Lane lane = Lane::kControl;
    std::vector<Frame> frames;
    absl::Status reason;
  };
  struct Reordered {
    std::uint64_t id;
    Frame frame;
    int behind;
  };
  struct Departure {
    Lane lane;
    Frame frame;
  };

  std::shared_ptr<Connection> inner() const {
    MutexLock lock(mutex_);
    return inner_;
  }
  std::vector<Reordered>& reordered_locked(FaultDirection direction, Lane lane)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return reordered_[static_cast<std::size_t>(direction)][static_cast<std::size_t>(lane)];
  }
  /// What goes on now in place of `frame`: nothing, the frame, or it and others.
  std::vector<Frame> apply(FaultDirection direction, Lane lane, Frame frame);
  std::vector<Frame> overtaken_by_one(FaultDirection direction, Lane lane);
  void reorder(const PlanImpl::Verdict& verdict, FaultDirection direction, Lane lane, Frame frame);
  void resume_later(std::chrono::nanoseconds delay, FaultDirection direction, Lane lane,
                    Frame frame);
  void arrive(Arrival arrival);
  void drain(Drain how);
  void deliver(Arrival arrival);

  const std::shared_ptr<PlanImpl> plan_;
  const std::string address_;
  const bool opened_here_;
  std::uint64_t number_ = 0;

  mutable Mutex mutex_;
  CondVar drained_;
  std::shared_ptr<Connection> inner_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<ConnectionHandler> handler_ ABSL_GUARDED_BY(mutex_);
  std::deque<Arrival> arrivals_ ABSL_GUARDED_BY(mutex_);
  std::deque<Departure> frozen_departures_ ABSL_GUARDED_BY(mutex_);
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  /// on_down is queued: nothing may be queued behind it.
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::string broken_why_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t next_reordered_ ABSL_GUARDED_BY(mutex_) = 0;
  std::array<std::array<std::vector<Reordered>, kLaneCount>, 2> reordered_ ABSL_GUARDED_BY(mutex_);
};

absl::Status FaultyLink::send(Lane lane, Frame frame) {
  {
    MutexLock lock(mutex_);
    if (ended_) return absl::UnavailableError("the connection is down");
    if (plan_->frozen) {
      frozen_departures_.push_back({lane, std::move(frame)});
      return absl::OkStatus();
    }
  }
  const std::shared_ptr<Connection> inner = this->inner();
  // Before connect() has returned, or one that a rule failed.
  if (inner == nullptr) return absl::OkStatus();
  absl::Status first;
  for (Frame& passing : apply(FaultDirection::kOutgoing, lane, std::move(frame))) {
    first.Update(inner->send(lane, std::move(passing)));
  }
  return first;
}

void FaultyLink::close(absl::Status reason) {
  if (const std::shared_ptr<Connection> inner = this->inner()) inner->close(std::move(reason));
}

void FaultyLink::on_up(const std::shared_ptr<Connection>& connection) {
  set_inner(connection);
  arrive({Arrival::Kind::kUp, Lane::kControl, {}, {}});
}

void FaultyLink::on_frames(const std::shared_ptr<Connection>& connection, Lane lane,
                           std::vector<Frame> frames) {
  set_inner(connection);
  Arrival arrival{Arrival::Kind::kFrames, lane, {}, {}};
  for (Frame& frame : frames) {
    for (Frame& passing : apply(FaultDirection::kIncoming, lane, std::move(frame))) {
      arrival.frames.push_back(std::move(passing));
    }
  }
  if (!arrival.frames.empty()) arrive(std::move(arrival));
}

void FaultyLink::on_down(const std::shared_ptr<Connection>& connection,
                         const absl::Status& reason) {
  if (connection != nullptr) set_inner(connection);
  absl::Status told = reason;
  {
    MutexLock lock(mutex_);
    if (!broken_why_.empty()) told = absl::UnavailableError(broken_why_);
  }
  arrive({Arrival::Kind::kDown, Lane::kControl, {}, std::move(told)});
}

std::vector<Frame> FaultyLink::apply(FaultDirection direction, Lane lane, Frame frame) {
  std::vector<Frame> passing;
  const std::optional<PlanImpl::Verdict> verdict =
      plan_->decide({direction, lane, frame, address_, remote_hello(), number_, opened_here_});
  if (!verdict.has_value()) {
    passing.push_back(std::move(frame));
  } else {
    switch (verdict->action) {
      case FaultAction::kDrop:
        return passing;
      case FaultAction::kDelay:
        resume_later(verdict->delay, direction, lane, std::move(frame));
        return passing;
      case FaultAction::kDuplicate:
        if (verdict->delay.count() > 0) {
          resume_later(verdict->delay, direction, lane, copy_of(frame));
          passing.push_back(std::move(frame));
        } else {
          Frame copy = copy_of(frame);
          passing.push_back(std::move(frame));
          passing.push_back(std::move(copy));
        }
        break;
      case FaultAction::kReorder:
        reorder(*verdict, direction, lane, std::move(frame));
        return passing;
      case FaultAction::kHold:
        plan_->hold(verdict->id, {weak_from_this(), direction, lane, std::move(frame)});
        return passing;
      case FaultAction::kBreak:
        break_now("a fault broke the connection");
        return passing;
    }
  }
  for (Frame& overtaken : overtaken_by_one(direction, lane)) {
    passing.push_back(std::move(overtaken));
  }
  return passing;
}

std::vector<Frame> FaultyLink::overtaken_by_one(FaultDirection direction, Lane lane) {
  std::vector<Frame> ripe;
  MutexLock lock(mutex_);
  std::vector<Reordered>& waiting = reordered_locked(direction, lane);
  for (auto frame = waiting.begin(); frame != waiting.end();) {
    if (--frame->behind > 0) {
      ++frame;
      continue;
    }
    ripe.push_back(std::move(frame->frame));
    frame = waiting.erase(frame);
  }
  return ripe;
}

void FaultyLink::reorder(const PlanImpl::Verdict& verdict, FaultDirection direction, Lane lane,
                         Frame frame) {
  std::uint64_t id = 0;
  {
    MutexLock lock(mutex_);
    id = next_reordered_++;
    reordered_locked(direction, lane).push_back({id, std::move(frame), verdict.behind});
  }
  if (verdict.delay.count() <= 0) return;
  plan_->run_after(verdict.delay, [weak = weak_from_this(), direction, lane, id] {
    const std::shared_ptr<FaultyLink> link = weak.lock();
    if (link == nullptr) return;
    std::optional<Frame> late;
    {
      MutexLock lock(link->mutex_);
      std::vector<Reordered>& waiting = link->reordered_locked(direction, lane);
      auto found = std::find_if(waiting.begin(), waiting.end(),
                                [id](const Reordered& one) { return one.id == id; });
      if (found == waiting.end()) return;
      late = std::move(found->frame);
      waiting.erase(found);
    }
    link->resume(direction, lane, std::move(*late));
  });
}

void FaultyLink::resume_later(std::chrono::nanoseconds delay, FaultDirection direction, Lane lane,
                              Frame frame) {
  plan_->run_after(delay,
                   [weak = weak_from_this(), direction, lane, frame = std::move(frame)]() mutable {
                     if (auto link = weak.lock()) link->resume(direction, lane, std::move(frame));
                   });
}

void FaultyLink::resume(FaultDirection direction, Lane lane, Frame frame) {
  if (direction == FaultDirection::kIncoming) {
    Arrival arrival{Arrival::Kind::kFrames, lane, {}, {}};
    arrival.frames.push_back(std::move(frame));
    arrive(std::move(arrival));
    return;
  }
  {
    MutexLock lock(mutex_);
    if (plan_->frozen && !ended_) {
      frozen_departures_.push_back({lane, std::move(frame)});
      return;
    }
  }
  // Nobody is left to be told of an error: the frame is lost, as frames are when a connection
  // breaks.
  if (const std::shared_ptr<Connection> inner = this->inner()) {
    inner->send(lane, std::move(frame)).IgnoreError();
  }
}

void FaultyLink::break_now(const std::string& why) {
  {
    MutexLock lock(mutex_);
    broken_why_ = why;
  }
  close(absl::UnavailableError(why));
}

void FaultyLink::thaw() {
  std::deque<Departure> departures;
  {
    MutexLock lock(mutex_);
    std::swap(departures, frozen_departures_);
  }
  for (Departure& departure : departures) {
    send(departure.lane, std::move(departure.frame)).IgnoreError();
  }
  drain(Drain::kUnlessFrozen);
}

void FaultyLink::finish() {
  arrive({Arrival::Kind::kDown,
          Lane::kControl,
          {},
          absl::CancelledError("the transport was shut down")});
  // Again when another thread was at it: that one may have stopped because the plan is frozen.
  while (true) {
    drain(Drain::kAlways);
    MutexLock lock(mutex_);
    while (draining_) drained_.wait(mutex_);
    if (arrivals_.empty()) return;
  }
}

void FaultyLink::arrive(Arrival arrival) {
  {
    MutexLock lock(mutex_);
    if (ended_) return;
    ended_ = arrival.kind == Arrival::Kind::kDown;
    arrivals_.push_back(std::move(arrival));
  }
  drain(Drain::kUnlessFrozen);
}

void FaultyLink::drain(Drain how) {
  mutex_.lock();
  if (!draining_) {
    draining_ = true;
    while (!arrivals_.empty() && (how == Drain::kAlways || !plan_->frozen)) {
      Arrival arrival = std::move(arrivals_.front());
      arrivals_.pop_front();
      mutex_.unlock();
      deliver(std::move(arrival));
      mutex_.lock();
    }
    draining_ = false;
    drained_.notify_all();
  }
  mutex_.unlock();
}

void FaultyLink::deliver(Arrival arrival) {
  std::shared_ptr<ConnectionHandler> handler;
  std::array<std::array<std::vector<Reordered>, kLaneCount>, 2> lost;
  std::deque<Departure> unsent;
  const bool last = arrival.kind == Arrival::Kind::kDown;
  {
    MutexLock lock(mutex_);
    handler = handler_;
    if (last) {
      handler_ = nullptr;
      std::swap(lost, reordered_);
      std::swap(unsent, frozen_departures_);
    }
  }
  switch (arrival.kind) {
    case Arrival::Kind::kUp:
      handler->on_up(shared_from_this());
      break;
    case Arrival::Kind::kFrames:
      handler->on_frames(shared_from_this(), arrival.lane, std::move(arrival.frames));
      break;
    case Arrival::Kind::kDown:
      plan_->forget(shared_from_this(), number_);
      handler->on_down(shared_from_this(), arrival.reason);
      break;
  }
}

class FaultyTransport final : public Transport, public Acceptor {
 public:
  FaultyTransport(std::unique_ptr<Transport> inner, std::shared_ptr<FaultPlan> plan)
      : inner_(std::move(inner)), plan_(std::move(plan)) {}
  ~FaultyTransport() override { shutdown(); }

  absl::Status start(Acceptor* acceptor, UnaryHandler* unary) override {
    acceptor_ = acceptor;
    return inner_->start(this, unary);
  }
  std::string address() const override { return inner_->address(); }

  std::shared_ptr<Connection> connect(const std::string& address, const std::string& hello,
                                      const std::string& expected_name,
                                      std::shared_ptr<ConnectionHandler> handler) override {
    const std::shared_ptr<FaultyLink> link = make_link(std::move(handler), address, true);
    const absl::Status failed = plan_->impl()->decide_connect(FaultDirection::kOutgoing, address);
    if (failed.ok()) {
      link->set_inner(inner_->connect(address, hello, expected_name, link));
    } else {
      plan_->impl()->run_after(std::chrono::nanoseconds(0),
                               [link, failed] { link->on_down(nullptr, failed); });
    }
    return link;
  }

  absl::StatusOr<Accepted> on_connection(const std::string& hello,
                                         const AuthenticatedPeer& remote) override {
    if (plan_->impl()->frozen) return absl::UnavailableError("this worker is frozen");
    if (absl::Status refused =
            plan_->impl()->decide_connect(FaultDirection::kIncoming, remote.address);
        !refused.ok()) {
      return refused;
    }
    absl::StatusOr<Accepted> accepted = acceptor_->on_connection(hello, remote);
    if (accepted.ok()) {
      accepted->handler = make_link(std::move(accepted->handler), remote.address, false);
    }
    return accepted;
  }

  void shutdown() override {
    inner_->shutdown();
    std::vector<std::weak_ptr<FaultyLink>> links;
    {
      MutexLock lock(mutex_);
      std::swap(links, links_);
    }
    for (const std::weak_ptr<FaultyLink>& weak : links) {
      if (auto link = weak.lock()) link->finish();
    }
  }

 private:
  std::shared_ptr<FaultyLink> make_link(std::shared_ptr<ConnectionHandler> handler,
                                        const std::string& address, bool opened_here) {
    auto link =
        std::make_shared<FaultyLink>(plan_->impl(), std::move(handler), address, opened_here);
    link->set_number(plan_->impl()->add_link(link));
    MutexLock lock(mutex_);
    links_.erase(std::remove_if(links_.begin(), links_.end(),
                                [](const std::weak_ptr<FaultyLink>& old) { return old.expired(); }),
                 links_.end());
    links_.push_back(link);
    return link;
  }

  const std::unique_ptr<Transport> inner_;
  const std::shared_ptr<FaultPlan> plan_;
  Acceptor* acceptor_ = nullptr;
  Mutex mutex_;
  std::vector<std::weak_ptr<FaultyLink>> links_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

FaultPlan::FaultPlan(std::uint64_t seed, std::shared_ptr<FaultTimer> timer)
    : impl_(std::make_shared<Impl>(seed, std::move(timer))) {}

FaultPlan::~FaultPlan() {
  // Links may outlive the plan for a moment, on the timer's own thread, which cannot join itself.
  std::shared_ptr<FaultTimer> timer;
  MutexLock lock(impl_->mutex);
  impl_->ended = true;
  timer.swap(impl_->timer);
  lock.unlock();
}

FaultPlan::RuleId FaultPlan::add(FaultRule rule) {
  MutexLock lock(impl_->mutex);
  impl_->rules[impl_->next_rule].rule = std::move(rule);
  return impl_->next_rule++;
}

void FaultPlan::remove(RuleId rule) {
  MutexLock lock(impl_->mutex);
  impl_->rules.erase(rule);
  impl_->connect_rules.erase(rule);
}

std::size_t FaultPlan::release(RuleId rule) {
  std::vector<Impl::Held> frames;
  {
    MutexLock lock(impl_->mutex);
    frames = std::exchange(impl_->held[rule], {});
  }
  for (Impl::Held& held : frames) {
    if (auto link = held.link.lock()) {
      link->resume(held.direction, held.lane, std::move(held.frame));
    }
  }
  return frames.size();
}

std::uint64_t FaultPlan::hits(RuleId rule) const {
  MutexLock lock(impl_->mutex);
  return impl_->hits[rule];
}

bool FaultPlan::wait_for_hits(RuleId rule, std::uint64_t hits,
                              std::chrono::nanoseconds timeout) const {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  MutexLock lock(impl_->mutex);
  while (impl_->hits[rule] < hits) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    impl_->changed.wait_until(impl_->mutex, deadline);
  }
  return true;
}

FaultPlan::RuleId FaultPlan::fail_connects(std::function<bool(const std::string&)> matches,
                                           absl::Status status, std::uint64_t limit) {
  return impl_->add_connect_rule(
      {std::move(matches), std::move(status), limit, FaultDirection::kOutgoing});
}

FaultPlan::RuleId FaultPlan::refuse_connects(std::function<bool(const std::string&)> matches,
                                             absl::Status status, std::uint64_t limit) {
  return impl_->add_connect_rule(
      {std::move(matches), std::move(status), limit, FaultDirection::kIncoming});
}

std::size_t FaultPlan::break_connections(
    const std::function<bool(const std::string& peer)>& matches) {
  std::size_t broken = 0;
  for (const std::shared_ptr<FaultyLink>& link : impl_->live_links()) {
    if (matches && !matches(link->address())) continue;
    link->break_now("a fault broke the connection");
    ++broken;
  }
  return broken;
}

void FaultPlan::freeze() { impl_->frozen = true; }

void FaultPlan::thaw() {
  impl_->frozen = false;
  for (const std::shared_ptr<FaultyLink>& link : impl_->live_links()) link->thaw();
}

std::unique_ptr<Transport> make_faulty_transport(std::unique_ptr<Transport> inner,
                                                 std::shared_ptr<FaultPlan> plan) {
  return std::make_unique<FaultyTransport>(std::move(inner), std::move(plan));
}

}  // namespace sinew::internal
