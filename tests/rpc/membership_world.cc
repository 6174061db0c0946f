#include "sinew/tests/rpc/membership_world.h"

#include <utility>

namespace sinew::internal {

Worker::Worker(MembershipWorld& world, const std::string& name, Rendezvous rendezvous, bool serves,
               std::uint64_t incarnation, const std::string& address, seconds timeout)
    : plane(world.network, {name, -1, {incarnation}}, address) {
  MembershipOptions options;
  options.self.worker = {name, -1, {incarnation}};
  options.self.address = address;
  options.job = "job";
  options.rendezvous = rendezvous;
  options.timeout = timeout;
  if (serves) options.served_seed = address;
  options.probe_lost = [&world](const Member& who) {
    ++world.probes;
    const bool is_known = world.stopped.count(who.address) == 0;
    return is_known ? make_ready_future<bool>(world.dead.count(who.worker.incarnation) > 0)
                    : make_failed_future<bool>(make_error(absl::UnavailableError("no answer")));
  };
  options.ask_standing = [&world, this](const Member& of, const Standing& own) {
    return world.ask(*this, of, own);
  };
  options.is_linked = [&world](const WorkerInfo& other) {
    return world.unlinked.count(other.incarnation) == 0;
  };
  options.ask_address = [&world, this](const Contact& where, const Standing& own) {
    return world.ask_at(*this, where.address, own);
  };
  options.before_change = [this](const std::vector<Departed>& gone) {
    for (const Departed& each : gone) {
      if (!directory.find(each.worker).ok()) events.push_back("too late for " + each.worker.name);
    }
  };
  options.on_change = [this](const std::vector<Member>& fresh, const std::vector<Departed>& gone) {
    for (const Member& each : fresh) events.push_back("+" + each.worker.name);
    for (const Departed& each : gone) {
      events.push_back((each.how == Departure::kLeft ? "bye " : "-") + each.worker.name);
    }
  };
  options.on_removed = [this](const absl::Status& reason) {
    removed = std::string(reason.message());
  };
  options.on_warning = [this](const std::string& warning) { warnings.push_back(warning); };
  membership = std::make_unique<PeerMembership>(plane, directory, options, world.scheduler);
  joined = membership->join_async();
}

Future<Standing> MembershipWorld::ask(const Worker& asker, const Member& of, const Standing& own) {
  ++questions;
  const Promise<Standing> answer(scheduler.executor());
  if (is_down || stopped.count(of.address) > 0) {
    unanswered.push_back(answer);
    return answer.future();
  }
  for (const auto& worker : workers) {
    const bool is_it = worker->plane.self().incarnation == of.worker.incarnation;
    if (!is_it || worker->membership == nullptr) continue;
    answer.set_value(worker->membership->on_asked(asker.plane.self(), asker.plane.address(), own));
    return answer.future();
  }
  answer.set_error(make_error(absl::NotFoundError("nobody is there")));
  return answer.future();
}

Future<MembershipOptions::Answerer> MembershipWorld::ask_at(const Worker& asker,
                                                            const std::string& address,
                                                            const Standing& own) {
  for (const auto& worker : workers) {
    const bool is_there = worker->plane.address() == address && worker->membership != nullptr;
    if (!is_there || is_down || stopped.count(address) > 0) continue;
    return make_ready_future(MembershipOptions::Answerer{
        worker->info(),
        worker->membership->on_asked(asker.plane.self(), asker.plane.address(), own)});
  }
  return make_failed_future<MembershipOptions::Answerer>(
      make_error(absl::NotFoundError("nobody is there")));
}

}  // namespace sinew::internal
