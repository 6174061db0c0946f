// A LinkRunner's connections; the rest is in link_runner.cc.

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/flight_recorder.h"
#include "sinew/rpc/link/header_codec.h"
#include "sinew/rpc/link/identity_codec.h"
#include "sinew/rpc/link/link_codec.h"
#include "sinew/rpc/link/link_runner.h"
#include "sinew/rpc/link/link_runner_wire.h"
#include "sinew/rpc/link/link_table.h"
#include "sinew/rpc/transport/origin.h"

namespace sinew::internal {
namespace {

bool has_control(const std::vector<Inbound>& frames) {
  return std::any_of(frames.begin(), frames.end(),
                     [](const Inbound& frame) { return frame.header.kind == FrameKind::kControl; });
}

}  // namespace

// Sealed when the lock is free: to sign takes a while.
proto::Hello LinkRunner::hello_locked(const ConnectionName& connection) {
  proto::Hello hello;
  write_self(table_.self(), hello);
  write_identity(peer_, *hello.mutable_expected());
  write_link_hello(link_.hello(connection), hello);
  return hello;
}

// On the executor.
void LinkRunner::take_turn(Credit turn) {
  Outcome outcome;
  {
    MutexLock lock(mutex_);
    if (!closed_.ok()) return;
    link_.take_turn(now(), outcome.outputs);
    leave_locked(outcome);
  }
  const std::uint64_t attempt = std::exchange(outcome.outputs.dial, 0);
  perform(outcome);
  if (attempt != 0) open(attempt, std::move(turn));
}

void LinkRunner::open(std::uint64_t attempt, Credit turn) {
  const ConnectionName name{table_.self().worker.incarnation, attempt};
  auto wire = std::make_shared<Wire>(shared_from_this(), name, std::nullopt);
  proto::Hello hello;
  std::string address;
  {
    MutexLock lock(mutex_);
    if (!closed_.ok()) return;
    // The other end's may be up by now: a hello that names it as the last one would replace it.
    if (!link_.is_dialling(name)) return;
    wires_.push_back(wire);
    wire->turn = std::move(turn);
    hello = hello_locked(name);
    address = wire->dialled = address_;
  }
  if (address.empty()) {
    wire_down(wire, absl::UnavailableError("it has not said where it can be reached"), nullptr);
    return;
  }
  std::shared_ptr<Connection> connection = table_.transport().connect(
      address, seal_hello(std::move(hello), table_.self()), peer_.name, wire);
  absl::Status closed;
  {
    MutexLock lock(mutex_);
    closed = closed_;
    if (closed.ok()) {
      // It may be up, or down, by now.
      if (wire->connection == nullptr) wire->connection = std::move(connection);
      return;
    }
    // There may be no notice that it is down: the transport shuts down after the link has ended.
    wires_.erase(std::remove(wires_.begin(), wires_.end(), wire), wires_.end());
  }
  connection->close(closed);
}

absl::Status LinkRunner::check_terms(const LinkHello& theirs) const {
  const LeaseTerms& own = table_.options().terms;
  if (terms_fit(own, theirs.terms)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrFormat("worker '%s' has a lease of %.6g s, and worker '%s' one of %.6g s: give all "
                      "workers of a job similar ones",
                      peer_.name, std::chrono::duration<double>(theirs.terms.lease).count(),
                      table_.self().worker.name, std::chrono::duration<double>(own.lease).count()));
}

absl::StatusOr<Acceptor::Accepted> LinkRunner::offer(const proto::Hello& hello) {
  absl::StatusOr<LinkHello> theirs = read_link_hello(hello, peer_.incarnation);
  if (!theirs.ok()) return theirs.status();
  if (absl::Status fit = check_terms(*theirs); !fit.ok()) {
    return refuse(table_.self(), Refusal::kNotAllowed, std::string(fit.message()), hello);
  }
  Acceptor::Accepted accepted;
  Outcome outcome;
  proto::Hello answer;
  Refusal refusal = Refusal::kNone;
  {
    MutexLock lock(mutex_);
    refusal = link_.on_offer(*theirs, now(), outcome.outputs);
    if (refusal == Refusal::kNone) {
      if (address_.empty()) address_ = hello.address();
      auto wire = std::make_shared<Wire>(shared_from_this(), theirs->connection, *theirs);
      wires_.push_back(wire);
      accepted.handler = wire;
      answer = hello_locked(theirs->connection);
    }
    leave_locked(outcome);
  }
  perform(outcome);
  if (refusal != Refusal::kNone) {
    return refuse(table_.self(), refusal,
                  absl::StrFormat("worker '%s': %s", table_.self().worker.name, text_of(refusal)),
                  hello);
  }
  accepted.hello = seal_hello(std::move(answer), table_.self());
  return accepted;
}

bool LinkRunner::is_peer(const proto::Hello& hello) const {
  return hello.worker().incarnation() == peer_.incarnation.value &&
         hello.worker().name() == peer_.name;
}

absl::StatusOr<LinkHello> LinkRunner::check_answer(const Wire& wire,
                                                   const Connection& connection) const {
  const absl::StatusOr<proto::Hello> said =
      parse_hello(connection.remote_hello(), connection.remote().address);
  if (!said.ok()) return said.status();
  if (!is_peer(*said)) {
    return absl::NotFoundError(
        absl::StrFormat("another worker answers at %s than '%s'", wire.dialled, peer_.name));
  }
  if (const Unwelcome unwelcome =
          check_hello(*said, table_.self(), connection.remote(), Certified::kTheAddress);
      unwelcome.refusal != Refusal::kNone) {
    return absl::PermissionDeniedError(unwelcome.text);
  }
  absl::StatusOr<LinkHello> hello = read_link_hello(*said, wire.name.opener);
  if (hello.ok() && hello->connection != wire.name) {
    return absl::InvalidArgumentError("it answers another attempt");
  }
  if (hello.ok()) {
    if (absl::Status fit = check_terms(*hello); !fit.ok()) return fit;
  }
  return hello;
}

void LinkRunner::wire_up(const std::shared_ptr<Wire>& wire,
                         const std::shared_ptr<Connection>& connection) {
  Outcome outcome;
  Credit turn;
  absl::Status wrong;
  bool came_up = false;
  // It may answer when it has left already.
  is_guest();
  const absl::StatusOr<LinkHello> theirs =
      wire->offered.has_value() ? *wire->offered : check_answer(*wire, *connection);
  {
    MutexLock lock(mutex_);
    turn = std::move(wire->turn);
    wire->connection = connection;
    if (theirs.ok()) {
      link_.on_up(wire->name, *theirs, now(), outcome.outputs);
      came_up = link_.state() == Link::State::kUp && outcome.outputs.close.empty();
      if (came_up) connection_ = connection;
      if (came_up) announced_by_guest_.clear();
      if (came_up) remote_ = connection->remote();
      if (came_up) reversal_.reset();
      if (came_up && !wire->dialled.empty()) reached_at_ = wire->dialled;
      leave_locked(outcome);
    } else {
      wire->fault = wrong = theirs.status();
    }
  }
  if (!wrong.ok()) {
    connection->close(wrong);
    return;
  }
  perform(outcome);
  if (!came_up) return;
  FlightRecorder::of_process().add("link up", peer_.name);
  if (wire->offered.has_value()) table_.dial_turns().on_accepted(peer_.incarnation);
  if (const auto user = user_.lock()) user->on_up();
}

absl::Status LinkRunner::wire_announced(const std::shared_ptr<Wire>& wire, absl::string_view header,
                                        std::uint64_t size_bytes, std::size_t payloads) {
  LinkHeader parsed;
  if (absl::Status read = read_header(header, parsed); !read.ok()) return read;
  const std::uint64_t bytes = size_bytes - std::min<std::uint64_t>(size_bytes, header.size());
  const std::uint64_t room = LinkLanes::room_of(bytes, payloads);
  const bool guest = is_guest();
  MutexLock lock(mutex_);
  // Of another connection nothing is heard, so nothing needs to be fetched for it.
  if (!link_.announce(wire->name, parsed, room)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "worker '%s' announces a message of %d bytes, for which it has no room here", peer_.name,
        bytes));
  }
  if (!guest) return absl::OkStatus();
  GuestRoom taken;
  if (!take_guest_room_locked(room, taken)) return no_guest_room();
  announced_by_guest_[{lane_of(parsed.kind), parsed.number}] = std::move(taken);
  return absl::OkStatus();
}

bool LinkRunner::is_guest() const {
  if (is_member_.load(std::memory_order_relaxed)) return false;
  if (!table_.options().is_member(peer_)) return true;
  is_member_.store(true, std::memory_order_relaxed);
  return false;
}

bool LinkRunner::take_guest_room_locked(std::uint64_t bytes, GuestRoom& room) {
  room.of_link = Quota::take(guest_room_, kOwnUser, bytes);
  if (!room.of_link) return false;
  room.of_all = Quota::take(table_.guest_room(), origin_of(remote_.address), bytes);
  return static_cast<bool>(room.of_all);
}

absl::Status LinkRunner::no_guest_room() const {
  return absl::ResourceExhaustedError(absl::StrFormat(
      "as far as worker '%s' knows, worker '%s' is no member of the job: what it sends may take %d "
      "bytes there, and that of all such workers %d",
      table_.self().worker.name, peer_.name, guest_room_->in_all(), table_.guest_room()->in_all()));
}

// What is small comes without having been announced.
void LinkRunner::admit_guest_locked(Inbound& inbound, bool is_guest) {
  const auto announced =
      announced_by_guest_.find({lane_of(inbound.header.kind), inbound.header.number});
  if (announced != announced_by_guest_.end()) {
    inbound.guest_room = std::move(announced->second);
    announced_by_guest_.erase(announced);
    if (!is_guest) inbound.guest_room = GuestRoom();
    return;
  }
  const std::uint64_t room = inbound.room();
  if (!is_guest || !inbound.lost.ok() || take_guest_room_locked(room, inbound.guest_room)) return;
  inbound.lost = no_guest_room();
  inbound.lost_room = room;
  inbound.envelope.clear();
  inbound.payloads.clear();
}

// A call, or an answer, ends with the reason. Messages by which workers run the job have no use for
// a reason: they are sent again, with the next connection.
void LinkRunner::wire_lost(const std::shared_ptr<Wire>& wire, absl::string_view header,
                           std::uint64_t size_bytes, std::size_t payloads,
                           const absl::Status& reason) {
  std::vector<Inbound> arrived(1);
  LinkHeader& parsed = arrived[0].header;
  if (absl::Status read = read_header(header, parsed); !read.ok()) return receive(wire, {}, read);
  if (lane_of(parsed.kind) == Lane::kControl) return receive(wire, {}, reason);
  arrived[0].lost = reason;
  const std::uint64_t bytes = size_bytes - std::min<std::uint64_t>(size_bytes, header.size());
  arrived[0].lost_room = LinkLanes::room_of(bytes, payloads);
  receive(wire, std::move(arrived), absl::OkStatus());
}

void LinkRunner::wire_frames(const std::shared_ptr<Wire>& wire, std::vector<Frame> frames) {
  std::vector<Inbound> arrived;
  arrived.reserve(frames.size());
  absl::Status wrong;
  for (Frame& frame : frames) {
    Inbound& inbound = arrived.emplace_back();
    wrong = read_header(frame.header, inbound.header);
    if (!wrong.ok()) {
      arrived.pop_back();
      break;
    }
    inbound.envelope = std::move(frame.envelope);
    inbound.payloads = std::move(frame.payloads);
  }
  receive(wire, std::move(arrived), std::move(wrong));
}

// `wrong`: what is to be said of the frame after these; the connection ends with it.
void LinkRunner::receive(const std::shared_ptr<Wire>& wire, std::vector<Inbound> arrived,
                         absl::Status wrong) {
  Outcome outcome;
  std::vector<Inbound> delivered;
  absl::InlinedVector<std::uint64_t, 1> beats;
  const bool guest = is_guest();
  {
    MutexLock lock(mutex_);
    const BootClock::TimePoint time = now();
    // Those that are to be delivered move to the front.
    auto end = arrived.begin();
    for (Inbound& inbound : arrived) {
      const LinkLanes::Delivery delivery =
          link_.on_frame(wire->name, inbound.header, inbound.room(), time, outcome.outputs);
      if (delivery == LinkLanes::Delivery::kViolation) {
        wrong = absl::InvalidArgumentError(absl::StrFormat(
            "worker '%s' sent a message beyond its room, or out of number", peer_.name));
        break;
      }
      if (inbound.header.beat != 0 && link_.state() == Link::State::kUp) {
        beats.push_back(inbound.header.beat);
      }
      if (delivery == LinkLanes::Delivery::kDrop && lane_of(inbound.header.kind) == Lane::kCalls) {
        // Who goes by numbers hears of it all the same.
        inbound.header.is_void = true;
        inbound.envelope.clear();
        inbound.payloads.clear();
      } else if (delivery != LinkLanes::Delivery::kDeliver) {
        continue;
      }
      if (guest || !announced_by_guest_.empty()) admit_guest_locked(inbound, guest);
      if (&*end != &inbound) *end = std::move(inbound);
      ++end;
    }
    arrived.erase(end, arrived.end());
    leave_locked(outcome);
    delivered = take_turn_locked(std::move(arrived));
  }
  const std::shared_ptr<LinkUser> user = user_.lock();
  // What came before a goodbye, in the same packet, counts.
  const bool ends = outcome.outputs.end.has_value();
  if (!ends) perform(outcome);
  deliver(user.get(), std::move(delivered));
  if (user != nullptr) {
    for (const std::uint64_t beat : beats) user->on_beat(beat);
  }
  if (ends) perform(outcome);
  if (wrong.ok()) return;
  std::shared_ptr<Connection> connection;
  {
    MutexLock lock(mutex_);
    connection = wire->connection;
  }
  if (connection != nullptr) connection->close(wrong);
}

// Control frames keep their order also where a thread still has some of one connection in its hands
// when the next connection brings more: one thread hands them over at a time, and takes what others
// have left to it.
std::vector<Inbound> LinkRunner::take_turn_locked(std::vector<Inbound> frames) {
  if (!has_control(frames)) return frames;
  if (!delivers_control_) {
    delivers_control_ = true;
    return frames;
  }
  left_control_.insert(left_control_.end(), std::make_move_iterator(frames.begin()),
                       std::make_move_iterator(frames.end()));
  return {};
}

void LinkRunner::deliver(LinkUser* user, std::vector<Inbound> frames) {
  while (!frames.empty()) {
    const bool in_turn = has_control(frames);
    if (user != nullptr) user->on_frames(std::move(frames));
    if (!in_turn) return;
    frames.clear();
    MutexLock lock(mutex_);
    frames.swap(left_control_);
    delivers_control_ = !frames.empty();
  }
}

bool LinkRunner::break_connection() {
  std::shared_ptr<Connection> broken;
  {
    MutexLock lock(mutex_);
    broken = connection_;
    if (broken == nullptr) return false;
    const auto wire =
        std::find_if(wires_.begin(), wires_.end(),
                     [&](const std::shared_ptr<Wire>& each) { return each->connection == broken; });
    if (wire == wires_.end()) return false;
    // What the transport says of it would be that it was closed from here.
    (*wire)->fault = absl::UnavailableError("the connection was broken by a test");
  }
  broken->close(absl::UnavailableError("the connection was broken by a test"));
  return true;
}

void LinkRunner::wire_down(const std::shared_ptr<Wire>& wire, const absl::Status& down_reason,
                           std::shared_ptr<const ProcessHold> process) {
  absl::Status reason = down_reason;
  Credit turn;
  {
    MutexLock lock(mutex_);
    turn = std::move(wire->turn);
    if (!wire->fault.ok()) reason = wire->fault;
  }
  DownCause cause = absl::IsNotFound(reason) ? DownCause::kAddressRefuses : DownCause::kBroken;
  Refusal refusal = Refusal::kNone;
  const absl::StatusOr<proto::Hello> refused = read_refusal(reason);
  if (refused.ok()) {
    cause = DownCause::kRefused;
    refusal = static_cast<Refusal>(refused->refusal());
  }
  const bool proved = refused.ok() && is_peer(*refused) && is_signed(*refused) &&
                      refused->attempt() == wire->name.attempt &&
                      read_identity(refused->expected()).incarnation == wire->name.opener;
  Outcome outcome;
  {
    MutexLock lock(mutex_);
    wires_.erase(std::remove(wires_.begin(), wires_.end(), wire), wires_.end());
    if (wire->connection != nullptr && connection_ == wire->connection) {
      connection_ = nullptr;
      announced_by_guest_.clear();
    }
    wire->connection = nullptr;
    FlightRecorder::of_process().add("link down", absl::StrCat(peer_.name, ": ", reason.message()));
    if (!closed_.ok()) return;
    if (!absl::IsCancelled(reason)) {
      last_failure_ = absl::Status(reason.code(), reason.message());
    }
    watch_.hold(std::move(process));
    // A peer that answers and does not want this connection can be reached.
    const bool no_way =
        cause != DownCause::kRefused || consequence_of(refusal) == Consequence::kCountAsRefused;
    if (no_way && !link_.was_up() && link_.is_dialling(wire->name)) reversal_.on_failed(now());
    link_.on_down(wire->name, cause, refusal, proved, now(), outcome.outputs);
    leave_locked(outcome);
  }
  perform(outcome);
}

}  // namespace sinew::internal
