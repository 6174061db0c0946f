#include "sinew/rpc/membership/registrar.h"

#include <utility>
#include <variant>
#include <vector>

#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

// Whoever waits to get in is answered within that, or asks again.
constexpr registry::Time kRegistrarHold = std::chrono::seconds(1);
constexpr std::size_t kMostAskers = 65536;

bool waits_for_place(const registry::Request& request) {
  return std::holds_alternative<registry::Join>(request) ||
         std::holds_alternative<registry::Return>(request);
}

}  // namespace

Registrar::Registrar(const registry::Options& options, ControlPlane& plane, Scheduler& scheduler,
                     OnOwn on_own)
    : options_(options),
      plane_(plane),
      scheduler_(scheduler),
      on_own_(std::move(on_own)),
      table_(options, scheduler.now().time_since_epoch()) {}

void Registrar::start() {
  scheduler_.run_at(scheduler_.now() + options_.tick, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->scheduler_.runner()->post([self] { self->tick(); });
  });
}

void Registrar::close() {
  is_closed_ = true;
  const std::map<Incarnation, Held> held = std::exchange(held_, {});
  for (const auto& [worker, each] : held) {
    each.answer.try_set_error(make_error(absl::UnavailableError("the registrar shuts down")));
  }
}

void Registrar::tick() {
  if (is_closed_) return;
  deliver(table_.tick(now()));
  end_waits(now());
  start();
}

void Registrar::end_waits(registry::Time now) {
  std::vector<Incarnation> late;
  for (const auto& [worker, held] : held_) {
    if (now >= held.until) late.push_back(worker);
  }
  for (const Incarnation worker : late) say(worker, {id(), {}});
}

Future<std::string> Registrar::serve(const WorkerInfo& from, const std::string& body) {
  const Promise<std::string> answer(scheduler_.executor());
  if (body.empty()) {
    answer.set_value(encode(SaidByRegistrar{id(), {}}));
    return answer.future();
  }
  absl::StatusOr<AskedOfRegistrar> asked = decode_asked(body);
  if (!asked.ok()) {
    answer.set_error(make_error(asked.status()));
    return answer.future();
  }
  const Incarnation worker = from.incarnation;
  if (askers_.size() >= kMostAskers) askers_.clear();
  askers_[worker] = from;
  // Of two questions the earlier one is answered by now.
  if (held_.count(worker) > 0) say(worker, {id(), {}});
  held_.emplace(worker, Held{answer, now() + kRegistrarHold});
  const bool waits = waits_for_place(asked->request);
  deliver(table_.handle(worker, asked->echo, asked->request, now()));
  if (!waits && held_.count(worker) > 0) say(worker, {id(), {}});
  return answer.future();
}

void Registrar::ask_as_own(const AskedOfRegistrar& asked) {
  if (is_closed_) return;
  deliver(table_.handle(options_.own_worker, asked.echo, asked.request, now()));
}

void Registrar::on_process_ended(Incarnation worker, const std::string& reason) {
  if (is_closed_) return;
  deliver(table_.ended(worker, reason, now()));
}

// What one input leads to is one message for each that it concerns.
void Registrar::deliver(const registry::Effects& effects) {
  std::map<Incarnation, SaidByRegistrar> said;
  for (const registry::Send& send : effects) {
    for (const Incarnation to : send.to) {
      SaidByRegistrar& each = said[to];
      each.registrar = id();
      each.items.push_back({send.token, send.answer});
    }
  }
  for (auto& [to, each] : said) say(to, std::move(each));
}

void Registrar::say(Incarnation to, SaidByRegistrar said) {
  if (to == options_.own_worker) return on_own_(said);
  const auto held = held_.find(to);
  // That it waits it knows: what comes next is worth an answer.
  const bool only_waits =
      said.items.size() == 1 && std::holds_alternative<registry::Wait>(said.items.front().answer);
  if (held != held_.end()) {
    const Promise<std::string> answer = held->second.answer;
    const bool is_late = now() >= held->second.until;
    if (only_waits && !is_late && !is_closed_) {
      waits_[to] = std::move(said);
      return;
    }
    const auto waits = waits_.find(to);
    if (waits != waits_.end()) {
      if (said.items.empty()) said.items = std::move(waits->second.items);
      waits_.erase(waits);
    }
    held_.erase(held);
    answer.try_set_value(encode(said));
    return;
  }
  if (said.items.empty()) return;
  const auto asker = askers_.find(to);
  if (asker == askers_.end()) return;
  // Who does not get it asks again.
  plane_.control_call(asker->second, kRegistryNewsMethod, encode(said), 2 * kRegistrarHold);
}

}  // namespace sinew::internal
