#include "sinew/rpc/transport/inproc/internal/inproc_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace sinew::internal {
namespace {

constexpr char kScheme[] = "inproc://";

std::size_t index_of(Lane lane) { return static_cast<std::size_t>(lane); }

}  // namespace

absl::Status InprocConnection::send(Lane lane, Frame frame) {
  return core_->send(link_, end_, lane, std::move(frame));
}

std::shared_ptr<InprocEndpoint> InprocCore::add_endpoint(std::string name,
                                                         const Transport::Limits& limits,
                                                         std::vector<std::string> proven_names) {
  MutexLock lock(mutex_);
  if (name.empty()) name = absl::StrCat(next_name_++);
  auto endpoint = std::make_shared<InprocEndpoint>();
  endpoint->address = absl::StrCat(kScheme, name);
  endpoint->limits = limits;
  endpoint->identity.authenticated = !proven_names.empty();
  endpoint->identity.names = std::move(proven_names);
  endpoint->identity.address = endpoint->address;
  endpoints_.push_back(endpoint);
  return endpoint;
}

absl::Status InprocCore::listen(const std::shared_ptr<InprocEndpoint>& endpoint, Acceptor* acceptor,
                                UnaryHandler* unary_handler) {
  MutexLock lock(mutex_);
  if (endpoint->closing || endpoint->listening) {
    return absl::FailedPreconditionError(
        absl::StrCat(endpoint->address, " was started before: a transport starts once"));
  }
  if (!listeners_.emplace(endpoint->address, endpoint).second) {
    return absl::AlreadyExistsError(absl::StrCat(
        endpoint->address, " is taken: another transport of this network listens there"));
  }
  endpoint->listening = true;
  endpoint->acceptor = acceptor;
  endpoint->unary_handler = unary_handler;
  return absl::OkStatus();
}

std::shared_ptr<Connection> InprocCore::connect(const std::shared_ptr<InprocEndpoint>& opener,
                                                const std::string& address,
                                                const std::string& hello,
                                                const std::string& expected_name,
                                                std::shared_ptr<ConnectionHandler> handler) {
  auto link = std::make_shared<InprocLink>();
  link->opener_hello = hello;
  link->expected_name = expected_name;
  auto connection =
      std::make_shared<InprocConnection>(shared_from_this(), link, InprocEnd::kOpener);
  AuthenticatedPeer unproven;
  unproven.address = address;
  connection->set_remote("", std::move(unproven));

  MutexLock lock(mutex_);
  link->number = next_link_++;
  InprocSide& side = link->side(InprocEnd::kOpener);
  side.endpoint = opener;
  if (opener->closing) {
    side.phase = InprocSide::Phase::kDown;
    side.down_reason = absl::UnavailableError(absl::StrCat(opener->address, " was shut down"));
    return connection;
  }
  side.connection = connection;
  side.handler = std::move(handler);
  opener->links.insert(link);
  auto listener = listeners_.find(address);
  if (listener == listeners_.end()) {
    seal_locked(
        link, InprocEnd::kOpener,
        absl::StartsWith(address, kScheme)
            ? absl::NotFoundError(absl::StrCat("nothing listens at ", address))
            : absl::InvalidArgumentError(absl::StrCat("\"", address, "\" does not start with ",
                                                      kScheme, ", as addresses here do")));
    return connection;
  }
  link->side(InprocEnd::kAcceptor).endpoint = listener->second;
  InprocPendingEvent event;
  event.kind = InprocEvent::Kind::kConnect;
  event.link = link;
  event.end = InprocEnd::kAcceptor;
  schedule_locked(listener->second, std::move(event));
  if (mode_ == InprocMode::kThreaded) {
    opener->connect_deadlines.emplace(
        std::chrono::steady_clock::now() + opener->limits.connect_timeout, link);
    opener->changed.notify_one();
  }
  return connection;
}

void InprocCore::begin_shutdown(const std::shared_ptr<InprocEndpoint>& endpoint) {
  // Destroyed after the lock is gone: it may hold the last reference to frames.
  Events dropped;
  std::vector<std::shared_ptr<InprocUnaryState>> unanswered;
  {
    MutexLock lock(mutex_);
    if (endpoint->closing) return;
    endpoint->closing = true;
    endpoint->frozen = false;
    if (endpoint->listening) listeners_.erase(endpoint->address);
    for (auto event = endpoint->events.begin(); event != endpoint->events.end();) {
      const auto next = std::next(event);
      if (event->kind == InprocEvent::Kind::kConnect) {
        seal_locked(event->link, InprocEnd::kOpener,
                    absl::NotFoundError(
                        absl::StrCat("nothing listens at ", endpoint->address, " any more")));
        dropped.splice(dropped.end(), endpoint->events, event);
      } else if (event->kind == InprocEvent::Kind::kUnaryCall) {
        dropped.splice(dropped.end(), endpoint->events, event);
      }
      event = next;
    }
    for (const std::shared_ptr<InprocLink>& link : endpoint->links) {
      for (const InprocEnd end : {InprocEnd::kOpener, InprocEnd::kAcceptor}) {
        if (link->side(end).endpoint != endpoint) continue;
        seal_locked(link, end,
                    absl::CancelledError(absl::StrCat(endpoint->address, " shuts down")));
        seal_locked(link, other_end(end),
                    absl::UnavailableError(absl::StrCat(endpoint->address, " shut down")));
      }
    }
    unanswered.assign(endpoint->unary_calls.begin(), endpoint->unary_calls.end());
    endpoint->changed.notify_all();
  }
  for (const std::shared_ptr<InprocUnaryState>& call : unanswered) {
    abort_unary(call, absl::UnavailableError(absl::StrCat(endpoint->address, " shut down")));
  }
}

void InprocCore::run_endpoint(const std::shared_ptr<InprocEndpoint>& endpoint) {
  mutex_.lock();
  while (true) {
    expire_connects_locked(*endpoint);
    if (endpoint->events.empty() || endpoint->frozen) {
      if (endpoint->closing && endpoint->events.empty()) break;
      wait_locked(*endpoint);
      continue;
    }
    std::vector<Candidate> candidates;
    const std::size_t considered = chooser_ ? endpoint->events.size() : 1;
    auto event = endpoint->events.begin();
    for (std::size_t i = 0; i < considered; ++i) candidates.push_back({endpoint, event++});
    InprocPendingEvent chosen = take_locked(candidates[choose_locked(candidates)]);
    mutex_.unlock();
    run(endpoint, std::move(chosen));
    mutex_.lock();
  }
  mutex_.unlock();
}

void InprocCore::finish_shutdown(const std::shared_ptr<InprocEndpoint>& endpoint) {
  mutex_.lock();
  while (true) {
    while (endpoint->running) endpoint->changed.wait(mutex_);
    if (endpoint->events.empty()) break;
    InprocPendingEvent event = take_locked({endpoint, endpoint->events.begin()});
    mutex_.unlock();
    run(endpoint, std::move(event));
    mutex_.lock();
  }
  endpoint->finished = true;
  endpoints_.erase(std::remove(endpoints_.begin(), endpoints_.end(), endpoint), endpoints_.end());
  mutex_.unlock();
}

absl::Status InprocCore::send(const std::shared_ptr<InprocLink>& link, InprocEnd from, Lane lane,
                              Frame frame) {
  MutexLock lock(mutex_);
  const InprocSide& sender = link->side(from);
  if (!sender.down_reason.ok()) {
    return absl::UnavailableError(
        absl::StrCat("the connection is down: ", sender.down_reason.message()));
  }
  if (absl::Status refused = check_limits(frame, sender.endpoint->limits); !refused.ok()) {
    return refused;
  }
  link->side(other_end(from)).lanes[index_of(lane)].frames.push_back(std::move(frame));
  schedule_frames_locked(link, other_end(from), lane);
  return absl::OkStatus();
}

void InprocCore::close(const std::shared_ptr<InprocLink>& link, InprocEnd from,
                       const absl::Status& reason) {
  std::array<InprocSide::LaneQueue, kLaneCount> dropped;
  MutexLock lock(mutex_);
  InprocSide& side = link->side(from);
  if (!side.down_reason.ok()) return;
  // Who closes wants to hear nothing more but on_down.
  std::swap(dropped, side.lanes);
  seal_locked(link, from,
              absl::CancelledError(absl::StrCat("closed from here: ", reason.message())));
  seal_locked(link, other_end(from),
              absl::UnavailableError(absl::StrCat("closed by the other end: ", reason.message())));
}

void InprocCore::set_chooser(InprocNetwork::Chooser chooser) {
  MutexLock lock(mutex_);
  chooser_ = std::move(chooser);
}

void InprocCore::set_max_frames_per_event(std::size_t frames) {
  MutexLock lock(mutex_);
  max_frames_per_event_ = std::max<std::size_t>(frames, 1);
}

std::size_t InprocCore::break_connections(std::string_view one, std::string_view other) {
  MutexLock lock(mutex_);
  std::size_t broken = 0;
  for (const std::shared_ptr<InprocEndpoint>& endpoint : endpoints_) {
    for (const std::shared_ptr<InprocLink>& link : endpoint->links) {
      const InprocSide& opener = link->side(InprocEnd::kOpener);
      const InprocSide& acceptor = link->side(InprocEnd::kAcceptor);
      if (opener.endpoint != endpoint || acceptor.endpoint == nullptr) continue;
      const std::string& from = opener.endpoint->address;
      const std::string& to = acceptor.endpoint->address;
      if (!((from == one && to == other) || (from == other && to == one))) continue;
      if (!opener.down_reason.ok()) continue;
      ++broken;
      seal_locked(link, InprocEnd::kOpener, absl::UnavailableError("the connection broke"));
      seal_locked(link, InprocEnd::kAcceptor, absl::UnavailableError("the connection broke"));
    }
  }
  return broken;
}

bool InprocCore::break_connection(std::uint64_t number) {
  MutexLock lock(mutex_);
  for (const std::shared_ptr<InprocEndpoint>& endpoint : endpoints_) {
    for (const std::shared_ptr<InprocLink>& link : endpoint->links) {
      if (link->number != number || !link->side(InprocEnd::kOpener).down_reason.ok()) continue;
      seal_locked(link, InprocEnd::kOpener, absl::UnavailableError("the connection broke"));
      seal_locked(link, InprocEnd::kAcceptor, absl::UnavailableError("the connection broke"));
      return true;
    }
  }
  return false;
}

void InprocCore::set_frozen(std::string_view address, bool frozen) {
  MutexLock lock(mutex_);
  for (const std::shared_ptr<InprocEndpoint>& endpoint : endpoints_) {
    if (endpoint->address != address || endpoint->closing) continue;
    endpoint->frozen = frozen;
    endpoint->changed.notify_all();
  }
}

}  // namespace sinew::internal
