#include "actor/actor.h"

#include <algorithm>
#include <cstdio>
#include <future>
#include <utility>
#include <vector>

#include "common/credentials.h"

namespace actor_learner {
namespace {

// Steps of one push: few enough that weights are young, and enough that a call is worth its while.
constexpr std::size_t kLeastPush = 20;
constexpr std::size_t kMostPush = 1000;

sinew::WorkerOptions worker_options(const ActorOptions& options) {
  sinew::WorkerOptions worker;
  worker.name = options.name;
  worker.init_method = options.init_method;
  worker.credentials = examples::credentials_of(worker.name);
  // Workers come and go, and it is the learner that begins the job.
  worker.world_size = 0;
  worker.found_job = sinew::FoundJob::kNever;
  worker.lease = std::chrono::nanoseconds(static_cast<std::int64_t>(options.lease_s * 1e9));
  worker.join_timeout =
      std::chrono::nanoseconds(static_cast<std::int64_t>(options.join_timeout_s * 1e9));
  return worker;
}

}  // namespace

Actor::Actor(const ActorOptions& options, std::ostream& log)
    : options_(options),
      log_(log),
      link_(worker_options(options), [this](const std::string& line) { say(line); }),
      queue_(static_cast<std::size_t>(options.queue), options.overflow) {}

void Actor::run() {
  say("is in the job");
  // Whichever ends first, also by an error, ends the other one.
  const auto until_one_ends = [this](void (Actor::*work)()) {
    try {
      (this->*work)();
    } catch (...) {
      stop();
      throw;
    }
    stop();
  };
  std::future<void> delivery = std::async(std::launch::async, until_one_ends, &Actor::deliver);
  until_one_ends(&Actor::play);
  delivery.get();
  link_.leave();
}

void Actor::stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  queue_.close();
  link_.stop();
}

void Actor::play() {
  Player player(options_.seed);
  std::int64_t episode = 0;
  for (Clock::time_point due = Clock::now(); await(due, player); due = after(due)) {
    const Step step = player.step();
    queue_.push(step);
    if (!step.episode_return) continue;
    say_episode(++episode, *step.episode_return, player);
    if (episode == options_.episodes) return;
  }
}

void Actor::deliver() {
  for (;;) {
    const std::vector<Step> steps = queue_.take(kLeastPush, kMostPush);
    if (steps.empty()) return;
    const std::optional<Receipt> receipt = link_.push(to_played(steps));
    if (!receipt) return;
    if (receipt->finished) {
      say("the training is over");
      return;
    }
  }
}

Actor::Clock::time_point Actor::after(Clock::time_point step) const {
  if (options_.speed == 0) return step;
  const auto pause = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(Pendulum::kStepSeconds / options_.speed));
  // Who is late does not hurry to make up for it.
  return std::max(step + pause, Clock::now());
}

bool Actor::await(Clock::time_point due, Player& player) {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_until(lock, due, [&] { return stopped_; });
    if (stopped_) return false;
  }
  const auto newest = link_.weights();
  if (newest != nullptr && newest->version != player.version()) player.use(*newest);
  return true;
}

void Actor::say_episode(std::int64_t episode, double episode_return, const Player& player) {
  if (episode % options_.log_interval != 0 && episode != options_.episodes) return;
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", episode_return);
  say("episode " + std::to_string(episode) + ": return " + text + ", weights " +
      version_text(player.version()) + ", " + std::to_string(queue_.dropped()) + " steps dropped");
}

void Actor::say(const std::string& line) const {
  log_ << options_.name + ": " + line + "\n" << std::flush;
}

}  // namespace actor_learner
