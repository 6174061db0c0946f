#include "sinew/tests/autograd/pass/pass_model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sinew::internal::sim {
namespace {

using Actions = PassPart::Actions;
using Parcels = PassPart::Parcels;

Incarnation incarnation(int worker) { return {static_cast<std::uint64_t>(worker) + 1}; }
int worker_of(Incarnation incarnation) { return static_cast<int>(incarnation.value) - 1; }

// Who waits in backward(), at the initiator.
constexpr PassPart::Waiter kUser = 0;

Parcels parcels(const std::set<std::uint64_t>& messages) {
  Parcels result;
  for (const std::uint64_t message : messages) {
    result.push_back({message, static_cast<std::uint32_t>(message)});
  }
  return result;
}

std::set<std::uint64_t> messages_of(const Parcels& parcels) {
  std::set<std::uint64_t> messages;
  for (const PassPart::Parcel& parcel : parcels) messages.insert(parcel.message);
  return messages;
}

}  // namespace

PassModel::PassModel(const PassWorld& world)
    : world_(world),
      workers_(static_cast<std::size_t>(world.workers)),
      errors_left_(world.errors),
      timeouts_left_(world.timeouts),
      may_lose_(world.mortal >= 0) {
  for (int i = 0; i < world.workers; ++i) workers_[i].book = PassBook(incarnation(i));
}

PassId PassModel::id(std::uint64_t serial) const {
  return {incarnation(shape(serial).initiator), serial};
}

bool PassModel::takes_part(int worker, std::uint64_t serial) const {
  const PassShape& pass = shape(serial);
  return worker == pass.initiator ||
         std::any_of(pass.messages.begin(), pass.messages.end(),
                     [&](const PassMessage& message) { return message.sender == worker; });
}

bool PassModel::can_start() const {
  if (outcomes_.size() == world_.passes.size()) return false;
  if (!outcomes_.empty() && outcomes_.back() == Outcome::kPending) return false;
  const Worker& initiator = workers_[shape(outcomes_.size() + 1).initiator];
  return initiator.alive;
}

void PassModel::each_next(const Visit& visit) const {
  if (!wrong_.empty()) return;
  const auto step = [&](const std::string& name, const auto& change) {
    PassModel next = *this;
    change(next);
    visit(next, name);
  };
  if (can_start()) step("a pass starts", [](PassModel& next) { next.start(); });
  for (std::size_t i = 0; i < packets_.size(); ++i) {
    if (must_wait(i)) continue;
    step(packets_[i].key(), [i](PassModel& next) { next.arrive(i); });
  }
  for (int i = 0; i < world_.workers; ++i) {
    const Worker& worker = workers_[i];
    if (!worker.alive) continue;
    const std::string name = absl::StrCat("worker ", i);
    if (worker.work != Work::kNone) {
      step(absl::StrCat(name, " goes on"), [i](PassModel& next) { next.run_ends(i); });
    }
    if (worker.work == Work::kRuns) {
      for (const auto& [to, gradients] : worker.yield) {
        if (worker.offered.count(to) > 0) continue;
        step(absl::StrCat(name, " yields early"),
             [i, to = to](PassModel& next) { next.yield_early(i, to); });
      }
    }
    const bool may_throw = worker.work == Work::kRuns || worker.work == Work::kReduces;
    if (may_throw && errors_left_ > 0) {
      step(absl::StrCat(name, " throws"), [i](PassModel& next) {
        --next.errors_left_;
        next.fail(i, Outcome::kFailed);
      });
    }
  }
  if (timeouts_left_ > 0 && !outcomes_.empty() && outcomes_.back() == Outcome::kPending) {
    step("its time is over", [](PassModel& next) {
      --next.timeouts_left_;
      next.fail(next.shape(next.running()).initiator, Outcome::kFailed);
    });
  }
  if (may_lose_) step("a worker is lost", [](PassModel& next) { next.lose(next.world_.mortal); });
}

// Replies that are errors do not overtake each other.
bool PassModel::must_wait(std::size_t number) const {
  const Packet& packet = packets_[number];
  const auto is_earlier = [&](const Packet& other) {
    return other.is_error() && other.from == packet.from && other.to == packet.to;
  };
  return packet.is_error() &&
         std::any_of(packets_.begin(), packets_.begin() + static_cast<std::ptrdiff_t>(number),
                     is_earlier);
}

// ---- What the layer around the rules does.

void PassModel::start() {
  outcomes_.push_back(Outcome::kPending);
  const std::uint64_t serial = running();
  const int initiator = shape(serial).initiator;
  Worker& worker = workers_[initiator];
  const PassBook::Joined joined = worker.book.join(id(serial));
  if (joined.how != PassBook::Joining::kBegins) {
    // Another worker's pass, whose end has not been heard of: the user is told, and tries again.
    if (serial > 1 && shape(serial - 1).initiator == initiator) break_rule("it is still busy");
    outcomes_.back() = Outcome::kFailed;
    return;
  }
  begin(initiator, id(serial));
  perform(initiator, worker.part->prepare(std::nullopt, Answering::kAtTheEnd, kUser));
  perform(initiator, worker.part->begin(plan_of(initiator, serial), parcels({PassPart::kRoots})));
}

void PassModel::begin(int number, const PassId& pass) {
  Worker& worker = workers_[number];
  worker.part.emplace(pass, incarnation(number));
  worker.pass = pass;
  worker.work = Work::kNone;
  worker.failure = Outcome::kAborted;
  worker.arrived.clear();
  worker.sent.clear();
  worker.yield.clear();
  worker.offered.clear();
}

PassPart::Plan PassModel::plan_of(int worker, std::uint64_t serial) const {
  const PassShape& pass = shape(serial);
  PassPart::Plan plan;
  plan.reduces = worker == world_.reducer;
  const bool is_initiator = worker == pass.initiator;
  if (is_initiator) plan.entries.insert(PassPart::kRoots);
  std::set<Incarnation> of_others;
  for (std::size_t i = 0; i < pass.messages.size(); ++i) {
    const PassMessage& message = pass.messages[i];
    if (message.sender == worker) plan.entries.insert(i + 1);
    if (!is_initiator || message.sender == worker) continue;
    plan.ask_later.insert(incarnation(message.sender));
    if (message.receiver != worker) of_others.insert(incarnation(message.sender));
  }
  for (const Incarnation other : of_others) {
    plan.ask_later.erase(other);
    plan.ask.insert(other);
  }
  return plan;
}

void PassModel::arrive(std::size_t number) {
  const Packet packet = packets_[number];
  packets_.erase(packets_.begin() + static_cast<std::ptrdiff_t>(number));
  Worker& worker = workers_[packet.to];
  switch (packet.kind) {
    case Packet::Kind::kRun:
      return on_run(packet);
    case Packet::Kind::kBring:
      return on_bring(packet);
    case Packet::Kind::kAnswer:
      return on_answer(packet);
    case Packet::Kind::kAbort:
      end_failed(packet.to, id(packet.serial));
      if (world_.is_coarse) {
        return workers_[packet.from].book.settle(packet.serial, incarnation(packet.to));
      }
      packets_.push_back({Packet::Kind::kHeard, packet.to, packet.from, packet.serial});
      return;
    case Packet::Kind::kHeard:
      return worker.book.settle(packet.serial, incarnation(packet.from));
    case Packet::Kind::kCancel: {
      const auto call = calls_.find(packet.call);
      if (call == calls_.end() || !call->second.prepares || call->second.is_answered) return;
      if (worker.pass == id(packet.serial)) fail(packet.to, Outcome::kAborted);
      return end_pass(packet.to, id(packet.serial), PassPart::End::kFailed);
    }
    case Packet::Kind::kLost:
      return on_lost(packet.to, packet.from);
  }
}

std::optional<PassBook::Joining> PassModel::join(const Packet& packet) {
  Worker& worker = workers_[packet.to];
  const PassBook::Joined joined = worker.book.join(id(packet.serial));
  switch (joined.how) {
    case PassBook::Joining::kIsOver:
    case PassBook::Joining::kMustWait:
      answer(packet.to, packet.call, {}, false, Outcome::kAborted);
      return std::nullopt;
    case PassBook::Joining::kBegins:
      if (joined.stale.has_value()) fail(packet.to, Outcome::kAborted);
      begin(packet.to, id(packet.serial));
      break;
    case PassBook::Joining::kRuns:
      break;
  }
  return joined.how;
}

void PassModel::on_run(const Packet& packet) {
  Worker& worker = workers_[packet.to];
  for (const std::uint64_t failed : packet.failed) end_failed(packet.to, id(failed));
  if (!join(packet).has_value()) return;
  if (worker.part->is_prepared()) return break_rule("a worker is asked twice");
  calls_.at(packet.call).prepares = true;
  perform(packet.to, worker.part->prepare(incarnation(packet.from), packet.answering, packet.call));
  if (worker.part->has_ended()) return;
  perform(packet.to,
          worker.part->begin(plan_of(packet.to, packet.serial), parcels(packet.messages)));
}

void PassModel::on_bring(const Packet& packet) {
  if (!join(packet).has_value()) return;
  perform(packet.to, workers_[packet.to].part->deliver(parcels(packet.messages), packet.answering,
                                                       packet.call));
}

void PassModel::on_answer(const Packet& packet) {
  Worker& worker = workers_[packet.to];
  calls_.erase(packet.call);
  if (!(worker.pass == id(packet.serial))) return;
  if (packet.outcome != Outcome::kDone) return fail(packet.to, packet.outcome);
  perform(packet.to,
          worker.part->on_answer(incarnation(packet.from), parcels(packet.messages), packet.waits));
}

void PassModel::on_lost(int number, int lost) {
  Worker& worker = workers_[number];
  bool fails = false;
  for (auto at = calls_.begin(); at != calls_.end();) {
    const bool ends = at->second.from == number && at->second.to == lost;
    fails = fails || (ends && worker.pass == id(at->second.serial));
    at = ends ? calls_.erase(at) : std::next(at);
  }
  if (fails) fail(number, Outcome::kFailed);
  const std::optional<PassId> running = worker.book.running();
  if (running.has_value() && running->initiator == incarnation(lost)) {
    fail(number, Outcome::kAborted);
    end_pass(number, *running, PassPart::End::kFailed);
  }
}

void PassModel::end_failed(int number, const PassId& failed) {
  Worker& worker = workers_[number];
  if (worker.book.runs(failed)) fail(number, Outcome::kAborted);
  end_pass(number, failed, PassPart::End::kFailed);
}

// ---- The graph.

void PassModel::yield_early(int number, Incarnation to) {
  Worker& worker = workers_[number];
  worker.offered.insert(to);
  std::set<Incarnation> receivers;
  for (const auto& [receiver, gradients] : worker.yield) receivers.insert(receiver);
  Parcels& all = worker.yield.at(to);
  Parcels first = all;
  if (worker.part->may_leave_in_pieces(to)) first.resize(1);
  const auto actions = worker.part->on_early(to, first, receivers);
  if (!actions.has_value()) return;
  all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(first.size()));
  if (all.empty()) {
    worker.yield.erase(to);
  } else {
    worker.offered.erase(to);
  }
  perform(number, *actions);
}

void PassModel::run_ends(int number) {
  Worker& worker = workers_[number];
  switch (worker.work) {
    case Work::kRuns:
      worker.work = Work::kHasRun;
      perform(number, worker.part->on_ran(std::exchange(worker.yield, {})));
      return world_.is_coarse ? run_ends(number) : void();
    case Work::kHasRun:
      worker.work = Work::kNone;
      return perform(number, worker.part->next());
    case Work::kReduces:
      worker.work = Work::kHasRun;
      return perform(number, worker.part->on_reduced());
    case Work::kNone:
      return;
  }
}

void PassModel::fail(int number, Outcome why) {
  Worker& worker = workers_[number];
  if (!worker.part.has_value() || worker.part->has_ended()) return;
  worker.failure = why;
  worker.work = Work::kNone;
  perform(number, worker.part->fail());
}

void PassModel::lose(int lost) {
  may_lose_ = false;
  workers_[lost].alive = false;
  packets_.erase(std::remove_if(packets_.begin(), packets_.end(),
                                [lost](const Packet& packet) {
                                  return packet.from == lost || packet.to == lost;
                                }),
                 packets_.end());
  for (int i = 0; i < world_.workers; ++i) {
    if (i != lost) packets_.push_back({Packet::Kind::kLost, lost, i});
  }
  if (!outcomes_.empty() && shape(running()).initiator == lost) outcomes_.back() = Outcome::kFailed;
}

// ---- What the rules say.

void PassModel::perform(int number, const Actions& actions) {
  Worker& worker = workers_[number];
  if (actions.fault != PassPart::Fault::kNone) {
    break_rule(actions.fault == PassPart::Fault::kUnexpected
                   ? "gradients come that nobody waits for"
                   : "a worker waits for gradients that nothing leads to");
    return fail(number, Outcome::kFailed);
  }
  if (actions.commit) commit(number);
  for (const PassPart::Send& one : actions.sends) send(number, one);
  if (actions.reduce) worker.work = Work::kReduces;
  const bool is_initiator = worker.pass.initiator == incarnation(number);
  if (!is_initiator) tell_failed(number, actions.failed);
  if (actions.end.has_value()) {
    end_pass(number, worker.pass, *actions.end);
    // Calls that it waits for are cancelled.
    for (const auto& [call, made] : calls_) {
      if (*actions.end == PassPart::End::kDone || made.from != number || world_.is_coarse) continue;
      if (made.serial != worker.pass.serial || !workers_[made.to].alive || made.is_answered)
        continue;
      packets_.push_back({Packet::Kind::kCancel, number, made.to, made.serial, call});
    }
  }
  abort(number, worker.pass, actions.abort);
  std::set<std::uint64_t> gradients = messages_of(actions.answer.gradients);
  for (const PassPart::Waiter call : actions.answer.waiters) {
    answer(number, call, std::exchange(gradients, {}), actions.answer.waits, Outcome::kDone);
  }
  if (is_initiator) tell_failed(number, actions.failed);
  if (!actions.run) return;
  worker.work = Work::kRuns;
  worker.offered.clear();
  for (const PassPart::Parcel& parcel : actions.arrivals) worker.arrived.insert(parcel.message);
  const PassShape& pass = shape(worker.pass.serial);
  for (std::size_t i = 0; i < pass.messages.size(); ++i) {
    const PassMessage& message = pass.messages[i];
    if (message.receiver != number || worker.sent.count(i + 1) > 0) continue;
    const bool complete =
        std::all_of(message.needs.begin(), message.needs.end(),
                    [&](std::uint64_t need) { return worker.arrived.count(need) > 0; });
    if (!complete) continue;
    worker.sent.insert(i + 1);
    worker.yield[incarnation(message.sender)].push_back({i + 1, static_cast<std::uint32_t>(i + 1)});
  }
}

void PassModel::tell_failed(int number, const std::vector<PassPart::Waiter>& calls) {
  const Worker& worker = workers_[number];
  for (const PassPart::Waiter call : calls) {
    answer(number, call, {}, false, worker.part->has_failed() ? worker.failure : Outcome::kAborted);
  }
}

void PassModel::end_pass(int number, const PassId& pass, PassPart::End end) {
  Worker& worker = workers_[number];
  const PassBook::Added added = worker.book.end(pass, end);
  if (added == PassBook::Added::kIsTakenBack) worker.added.erase(pass.serial);
}

void PassModel::abort(int number, const PassId& pass, const std::vector<Incarnation>& asked) {
  for (const Incarnation told : asked) {
    workers_[number].book.owe(pass.serial, told);
    if (!workers_[worker_of(told)].alive) continue;
    packets_.push_back({Packet::Kind::kAbort, number, worker_of(told), pass.serial});
  }
}

void PassModel::commit(int number) {
  Worker& worker = workers_[number];
  if (!worker.book.runs(worker.pass)) return;
  if (!worker.added.insert(worker.pass.serial).second) break_rule("gradients are added twice");
}

void PassModel::send(int number, const PassPart::Send& one) {
  const Worker& worker = workers_[number];
  const int to = worker_of(one.worker);
  const auto pair = static_cast<PassPart::Waiter>(worker.pass.serial * 100 + number * 10 + to);
  const PassPart::Waiter call = pair * 100 + static_cast<PassPart::Waiter>(++made_[pair]);
  if (!workers_[to].alive) {
    // It cannot be sent; said of afterwards, as a call's end is.
    packets_.push_back({Packet::Kind::kAnswer,
                        to,
                        number,
                        worker.pass.serial,
                        call,
                        Answering::kAtTheEnd,
                        {},
                        {},
                        false,
                        Outcome::kFailed});
    return;
  }
  calls_[call] = {number, to, worker.pass.serial};
  Packet packet{one.kind == PassPart::Send::Kind::kAsk ? Packet::Kind::kRun : Packet::Kind::kBring,
                number,
                to,
                worker.pass.serial,
                call,
                one.answering,
                messages_of(one.gradients)};
  if (packet.kind == Packet::Kind::kRun) packet.failed = worker.book.owed_to(one.worker);
  packets_.push_back(std::move(packet));
}

void PassModel::answer(int number, PassPart::Waiter call, std::set<std::uint64_t> messages,
                       bool waits, Outcome outcome) {
  if (call == kUser) return end_at_initiator(outcome);
  const auto found = calls_.find(call);
  // Its caller is lost.
  if (found == calls_.end()) return;
  const Call& made = found->second;
  if (std::exchange(found->second.is_answered, true)) break_rule("a call is answered twice");
  if (!workers_[made.from].alive) return;
  packets_.push_back({Packet::Kind::kAnswer,
                      number,
                      made.from,
                      made.serial,
                      call,
                      Answering::kAtTheEnd,
                      std::move(messages),
                      {},
                      waits,
                      outcome});
}

void PassModel::end_at_initiator(Outcome outcome) {
  if (outcomes_.back() != Outcome::kPending) return break_rule("backward() ends twice");
  outcomes_.back() = outcome == Outcome::kDone ? Outcome::kDone : Outcome::kFailed;
  // Among more of them the word of one that was told of the failure may come before its reason.
  if (outcome == Outcome::kAborted && world_.workers == 2) break_rule("nobody says why it failed");
  if (outcome != Outcome::kDone) return;
  const std::uint64_t serial = running();
  for (int i = 0; i < world_.workers; ++i) {
    if (!workers_[i].alive || !takes_part(i, serial)) continue;
    if (workers_[i].added.count(serial) == 0) {
      return break_rule("a pass is done that a worker is not through with");
    }
    for (std::uint64_t other = 1; other < serial; ++other) {
      const bool same = shape(other).initiator == shape(serial).initiator;
      if (same && outcomes_[other - 1] == Outcome::kFailed && workers_[i].added.count(other) > 0) {
        return break_rule("a worker has what a failed pass has added, when the next one is done");
      }
    }
  }
}

}  // namespace sinew::internal::sim
