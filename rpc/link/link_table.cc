#include "sinew/rpc/link/link_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "sinew/rpc/link/identity_codec.h"

namespace sinew::internal {
LinkTable::LinkTable(LinkTableOptions options, Executor& executor, Timers& timers,
                     const Clock& clock)
    : options_(std::move(options)),
      executor_(executor),
      timers_(timers),
      dial_turns_(
          std::make_shared<DialTurns>(options_.self.worker.incarnation, executor, timers, clock)) {}

void LinkTable::start(Transport& transport) {
  MutexLock lock(mutex_);
  transport_ = &transport;
  options_.self.address = transport.address();
  started_ = true;
}

absl::StatusOr<LinkTable::Link> LinkTable::find_or_make(const WorkerInfo& peer,
                                                        const std::string& address) {
  MutexLock lock(mutex_);
  if (closed_) return close_reason_;
  const auto [found, inserted] = links_.try_emplace(Key{peer.name, peer.incarnation});
  Link& link = found->second;
  if (inserted) {
    link.runner = std::make_shared<LinkRunner>(*this, peer, address);
    link.user = options_.make_user(link.runner);
    link.runner->set_user(link.user);
  }
  return link;
}

LinkTable::Link LinkTable::find(const WorkerInfo& peer) const {
  MutexLock lock(mutex_);
  const auto found = links_.find(Key{peer.name, peer.incarnation});
  return found == links_.end() ? Link() : found->second;
}

void LinkTable::forget(const LinkRunner& runner) {
  Link link;  // Goes after the lock.
  MutexLock lock(mutex_);
  const auto found = links_.find(Key{runner.peer().name, runner.peer().incarnation});
  if (found == links_.end() || found->second.runner.get() != &runner) return;
  link = std::move(found->second);
  if (std::find(ended_.begin(), ended_.end(), found->first) == ended_.end()) {
    ended_.push_back(found->first);
  }
  if (ended_.size() > kMaxEnded) ended_.pop_front();
  links_.erase(found);
}

bool LinkTable::has_ended(const WorkerInfo& peer) const {
  MutexLock lock(mutex_);
  return std::find(ended_.begin(), ended_.end(), Key{peer.name, peer.incarnation}) != ended_.end();
}

std::vector<LinkTable::Link> LinkTable::all() const {
  std::vector<Link> links;
  MutexLock lock(mutex_);
  links.reserve(links_.size());
  for (const auto& [key, link] : links_) links.push_back(link);
  return links;
}

void LinkTable::close(const absl::Status& reason) {
  {
    MutexLock lock(mutex_);
    if (closed_) return;
    closed_ = true;
    close_reason_ = reason;
  }
  dial_turns_->close();
  for (const Link& link : all()) link.runner->close(reason);
}

absl::StatusOr<Acceptor::Accepted> LinkTable::on_connection(const std::string& hello,
                                                            const AuthenticatedPeer& remote) {
  const absl::StatusOr<proto::Hello> said = parse_hello(hello, remote.address);
  if (!said.ok()) return said.status();
  bool listens = false;
  {
    MutexLock lock(mutex_);
    listens = started_ && !closed_;
  }
  if (!listens) {
    return refuse(options_.self, Refusal::kNotListeningYet,
                  "this worker is starting, or ends; try again", *said);
  }
  if (Unwelcome unwelcome = check_hello(*said, options_.self, remote);
      unwelcome.refusal != Refusal::kNone) {
    return refuse(options_.self, unwelcome.refusal, unwelcome.text, *said);
  }
  if (said->asks_registrar() && options_.on_registrar_asked) {
    return options_.on_registrar_asked(*said);
  }
  const Incarnation expected{said->expected().incarnation()};
  if (expected.value == 0) {
    return refuse(options_.self, Refusal::kWhoAnswers,
                  absl::StrFormat("worker '%s' answers here", options_.self.worker.name), *said);
  }
  if (expected != options_.self.worker.incarnation) {
    return refuse(options_.self, Refusal::kOtherIncarnation,
                  absl::StrFormat("another incarnation of worker '%s' answers here",
                                  options_.self.worker.name),
                  *said);
  }
  WorkerInfo peer = read_identity(said->worker());
  peer.rank = -1;
  std::shared_ptr<LinkRunner> runner = find(peer).runner;
  if (runner == nullptr) {
    if (absl::Status refused = check_stranger(*said, peer); !refused.ok()) return refused;
    absl::StatusOr<Link> made = find_or_make(peer, said->address());
    if (!made.ok()) return made.status();
    runner = made->runner;
    // Once more: code that takes the peer for lost notes that before it looks for its link.
    if (options_.known_as(peer) != Refusal::kNone) {
      runner->close(absl::UnavailableError("it was taken for lost meanwhile"));
      return refuse(options_.self, Refusal::kLostHere,
                    absl::StrFormat("worker '%s' holds this incarnation of worker '%s' for lost",
                                    options_.self.worker.name, peer.name),
                    *said);
    }
  }
  return runner->offer(*said);
}

// A peer with which there is no link.
absl::Status LinkTable::check_stranger(const proto::Hello& said, const WorkerInfo& peer) {
  const auto no = [&](Refusal refusal, const std::string& text) {
    return refuse(options_.self, refusal, text, said);
  };
  const Refusal known = has_ended(peer) ? Refusal::kLostHere : options_.known_as(peer);
  if (known != Refusal::kNone) {
    return no(known, absl::StrFormat("worker '%s' holds this incarnation of worker '%s' for lost: "
                                     "it must join again with a new one",
                                     options_.self.worker.name, peer.name));
  }
  // Who has forgotten must not take up numbers in the middle.
  if (said.last_up_opener() != 0) {
    return no(Refusal::kLostHere,
              absl::StrFormat("worker '%s' knows no such link", options_.self.worker.name));
  }
  if (options_.is_member(peer)) return absl::OkStatus();
  if (count_guests() < kMaxGuests) return absl::OkStatus();
  drop_unused_guests();
  if (count_guests() < kMaxGuests) return absl::OkStatus();
  return no(Refusal::kNotListeningYet,
            "too many workers that are no members have connected; try again later");
}

std::size_t LinkTable::count_guests() const {
  std::size_t guests = 0;
  for (const Link& each : all()) {
    if (!options_.is_member(each.runner->peer())) ++guests;
  }
  return guests;
}

// A link that never was up has no lease that would end it: a peer that said a hello and went away,
// or was refused with it, must not take a place permanently. Nothing is remembered of it either,
// since nothing was ever promised to its other end.
void LinkTable::drop_unused_guests() {
  for (const Link& each : all()) {
    if (options_.is_member(each.runner->peer()) || !each.runner->is_unused()) continue;
    {
      MutexLock lock(mutex_);
      const auto found =
          links_.find(Key{each.runner->peer().name, each.runner->peer().incarnation});
      if (found == links_.end() || found->second.runner != each.runner) continue;
      links_.erase(found);
    }
    each.runner->close(absl::UnavailableError("nothing came of a first contact"));
  }
}

}  // namespace sinew::internal
