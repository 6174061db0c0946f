#include "players.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

#include "cart_pole.h"
#include "sinew/examples/common/files.h"
#include "sinew/examples/common/stop_signal.h"
#include "sinew/rref/names.h"

namespace rl {
namespace {

// How soon it is noticed that the process is asked to end.
constexpr std::chrono::milliseconds kStopNoticed(100);
// A client that has made no step for so long is lost.
constexpr std::chrono::seconds kClientPatience(3);
constexpr char kPublished[] = "agent";

std::int64_t others(const sinew::Worker& worker) {
  return static_cast<std::int64_t>(worker.workers().size()) - 1;
}

// An observer is called for as long as its episode takes, and the agent is at hand.
std::shared_ptr<sinew::RRef<Agent>> make_agent(const sinew::Worker& worker,
                                               const Options& options) {
  auto self = std::make_shared<sinew::RRef<Agent>>();
  *self =
      sinew::share_rref(worker, std::make_shared<Agent>(options, self)).within(sinew::kNoTimeout);
  return self;
}

}  // namespace

Players::Players(const sinew::Worker& worker, const Options& options, Tell tell)
    : worker_(worker),
      options_(options),
      tell_(std::move(tell)),
      steps_per_observer_(options.max_steps / std::max<std::int64_t>(others(worker), 1)),
      agent_(make_agent(worker, options)),
      team_(worker.team<Observer>("*", [agent = *agent_](const sinew::Peer& peer) {
        return peer.remote<Observer>(agent.call<&Agent::admit>(peer.info()));
      })) {
  team_.wait_for(static_cast<std::size_t>(others(worker)));
  for (const auto& member : team_.members()) known_.push_back(member.worker);
  worker_.publish(kPublished, *agent_);
}

Players::~Players() {
  if (!worker_.is_running()) return;
  try {
    // The shutdown would wait for their calls.
    agent_->call<&Agent::dismiss_clients>();
    worker_.unpublish(kPublished);
  } catch (const sinew::RpcError&) {
    // The worker has ended meanwhile, and all that with it.
  }
}

std::int64_t Players::run_episode() {
  std::int64_t steps = 0;
  while (steps == 0 && await_one()) {  // 0: all who played are lost
    greet();
    const ClientNews clients = agent_->call<&Agent::begin_clients>(steps_per_observer_);
    tell(clients);
    const std::vector<Play> plays = play();
    if (clients.playing > 0) steps += await_clients();
    greet();  // who has come just before, and has played; who has gone since is forgotten
    for (const Play& one : plays) {
      if (knows(one.worker)) steps += one.steps;
    }
  }
  return steps;
}

// False when the process is asked to end.
bool Players::await_one() const {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(options_.patience_s);
  while (!examples::StopSignal::requested()) {
    try {
      team_.wait_for(1, kStopNoticed);
      return true;
    } catch (const sinew::RpcError& error) {
      if (error.code() != sinew::ErrorCode::kDeadlineExceeded) throw;
    }
    if (std::chrono::steady_clock::now() > deadline) {
      throw std::runtime_error("all observers are lost, and none has come within " +
                               examples::number(options_.patience_s) + " s");
    }
  }
  return false;
}

bool Players::knows(const sinew::WorkerInfo& worker) const {
  return std::find(known_.begin(), known_.end(), worker) != known_.end();
}

// Who has gone, or come. A call may say that a worker is lost before the team knows.
void Players::greet() {
  std::vector<sinew::WorkerInfo> present;
  for (const auto& member : team_.members()) {
    if (member.object.peer().alive()) present.push_back(member.worker);
  }
  for (const sinew::WorkerInfo& one : std::vector<sinew::WorkerInfo>(known_)) {
    if (std::find(present.begin(), present.end(), one) == present.end()) lose(one);
  }
  for (const sinew::WorkerInfo& one : present) {
    if (!knows(one)) tell_(one.name + " joins the team");
  }
  known_ = std::move(present);
}

void Players::lose(const sinew::WorkerInfo& worker) {
  agent_->call<&Agent::forget>(worker);
  const auto known = std::find(known_.begin(), known_.end(), worker);
  if (known == known_.end()) return;  // was told, or never greeted
  known_.erase(known);
  tell_(worker.name + " is lost; the others go on");
}

void Players::tell(const ClientNews& news) const {
  for (const std::string& name : news.joined) tell_(name + " joins the team");
  for (const std::string& name : news.lost) tell_(name + " is lost; the others go on");
}

// Returns their steps.
std::int64_t Players::await_clients() const {
  while (true) {
    const sinew::Future<void> played =
        agent_->within(kClientPatience).async<&Agent::clients_played>();
    try {
      played.wait();
    } catch (const sinew::RpcError& error) {
      if (error.code() != sinew::ErrorCode::kDeadlineExceeded) throw;
    }
    const ClientNews news = agent_->call<&Agent::drop_silent_clients>();
    tell(news);
    if (news.playing == 0) return news.steps;
  }
}

std::vector<Players::Play> Players::play() {
  std::size_t playing = team_.size();
  agent_->call<&Agent::expect>(playing);
  auto plays = team_.within(sinew::kNoTimeout)
                   .call_all<&Observer::run_episode>(*agent_, steps_per_observer_);
  if (plays.size() != playing) agent_->call<&Agent::expect>(playing = plays.size());
  std::vector<Play> ended;
  for (const auto& play : plays) {
    // One asks no more; perhaps the others have waited for that one alone.
    agent_->call<&Agent::expect>(--playing);
    if (play.lost()) {
      lose(play.member);
    } else {
      ended.push_back({play.member, play.value()});
    }
  }
  return ended;
}

double Players::goal() const {
  const auto most = std::min<std::int64_t>(steps_per_observer_, CartPole::kMaxSteps);
  return 475.0 * static_cast<double>(most) / CartPole::kMaxSteps;
}

}  // namespace rl
