#include "learner/training.h"

#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "ATen/ATen.h"
#include "learner/evaluation.h"
#include "sinew/examples/common/archives.h"
#include "sinew/examples/common/files.h"

namespace actor_learner {
namespace {

using examples::fixed;
using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

// To be raised when what is in a checkpoint changes.
constexpr std::int64_t kFormat = 1;
// How soon stop() is noticed while no actor plays.
constexpr auto kPatience = std::chrono::milliseconds(100);

double mean(const std::vector<double>& values) {
  // NaN of none: not known.
  return values.empty() ? std::numeric_limits<double>::quiet_NaN()
                        : std::accumulate(values.begin(), values.end(), 0.0) /
                              static_cast<double>(values.size());
}

}  // namespace

Training::Training(const Options& options, std::ostream& log)
    : options_(options),
      service_(std::make_shared<LearnerService>(options.capacity)),
      sac_(options.sac, options.seed),
      random_(make_random(options.seed)),
      log_(log) {
  curve_.title = "Soft actor-critic on Pendulum-v1";
  curve_.clock = "update";
  curve_.unit = "Return of an episode";
  curve_.names = {"actors", "evaluation"};
  if (!options.checkpoint.empty()) {
    checkpoints_.emplace(options.checkpoint);
    const auto tell = [this](const std::string& line) { say(line); };
    if (const auto checkpoint = checkpoints_->newest(tell)) restore(*checkpoint);
    // No start before had this number, whatever has become of its checkpoints.
    version_ = static_cast<std::uint64_t>(checkpoints_->next_number()) << kRunBits;
    save();
  }
}

void Training::publish_at(const sinew::Worker& worker) {
  if (publication_.valid()) {
    publication_.move_to(worker);
  } else {
    sinew::optim::PublicationOptions options;
    options.above = version_;
    publication_ = sinew::optim::Publication(worker, kWeightsName, options);
    publish();
  }
  worker.publish(kLearnerName, std::static_pointer_cast<Learner>(service_));
}

Outcome Training::run() {
  Outcome outcome = Outcome::kStopped;
  told_ = std::chrono::steady_clock::now();
  updates_told_ = updates_;
  while (!stopped_) {
    if (updates_ >= options_.updates) {
      outcome = Outcome::kNotSolved;
      break;
    }
    if (!await_next_batch()) continue;
    update();
    if (updates_ % options_.evaluate_every == 0 && evaluate()) {
      outcome = Outcome::kSolved;
      break;
    }
    if (updates_ % options_.checkpoint_every == 0) save();
  }
  publish();
  save();
  return outcome;
}

bool Training::await_next_batch() const {
  const auto wanted = static_cast<std::int64_t>(
      std::ceil(static_cast<double>(updates_ + 1) / options_.updates_per_transition));
  return service_->await_transitions(options_.warm_up + wanted, kPatience);
}

void Training::update() {
  sac_.update(service_->sample(options_.batch, random_));
  ++updates_;
  if (updates_ % options_.publish_every == 0) publish();
  show();
}

void Training::publish() {
  if (publication_.valid()) version_ = publication_.publish(sinew::optim::state_of(sac_.policy()));
}

bool Training::evaluate() {
  const std::vector<double> returns =
      actor_learner::evaluate(sac_.policy(), options_.evaluation_episodes,
                              options_.seed + static_cast<std::uint64_t>(updates_));
  const double of_actors = mean(service_->take_returns());
  curve_.points.push_back({static_cast<double>(updates_), {of_actors, mean(returns)}});
  write_curve();
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - told_).count();
  const auto rate = static_cast<double>(updates_ - std::exchange(updates_told_, updates_));
  told_ = now;
  say("Update " + std::to_string(updates_) + ": return " + fixed(mean(returns), 1) + ", actors " +
      (std::isnan(of_actors) ? "-" : fixed(of_actors, 1)) + ", " +
      std::to_string(service_->transitions()) + " transitions, temperature " +
      fixed(sac_.temperature(), 4) + ", weights " + version_text(version_) + ", " +
      fixed(rate / seconds, 0) + " updates/s");
  return mean(returns) >= options_.goal;
}

void Training::write_curve() const {
  if (!options_.output.empty()) examples::write_curve(curve_, options_.output, "returns");
}

void Training::save() {
  if (!checkpoints_) return;
  OutputArchive archive;
  archive.write("format", c10::IValue(kFormat));
  archive.write("updates", c10::IValue(updates_));
  archive.write("curve", c10::IValue(examples::to_csv(curve_)));
  archive.write("random", random_.get_state(), /*is_buffer=*/true);
  examples::save_part(archive, "sac", sac_);
  examples::save_part(archive, "service", *service_);
  checkpoints_->save(examples::to_bytes(archive));
}

void Training::restore(const CheckpointFolder::Checkpoint& checkpoint) {
  try {
    InputArchive archive;
    archive.load_from(checkpoint.content.data(), checkpoint.content.size());
    if (examples::read<std::int64_t>(archive, "format") != kFormat) {
      throw std::runtime_error("it is of another version of this program");
    }
    updates_ = examples::read<std::int64_t>(archive, "updates");
    curve_.points = examples::points_from_csv(curve_, examples::read<std::string>(archive, "curve"),
                                              static_cast<double>(updates_));
    random_.set_state(examples::read_tensor(archive, "random"));
    examples::load_part(archive, "sac", sac_);
    examples::load_part(archive, "service", *service_);
  } catch (const std::exception& error) {
    // LibTorch's texts go on with where in its sources they come from.
    const std::string text = error.what();
    throw std::runtime_error("cannot go on from " + checkpoint.file.string() + ": " +
                             text.substr(0, text.find('\n')));
  }
  say("Going on from " + checkpoint.file.string() + ": " + std::to_string(updates_) + " updates, " +
      std::to_string(service_->transitions()) + " transitions");
}

void Training::say(const std::string& line) {
  const std::lock_guard<std::mutex> lock(log_mutex_);
  bar_.clear();
  log_ << line + "\n" << std::flush;
}

void Training::show() {
  const std::lock_guard<std::mutex> lock(log_mutex_);
  bar_.show(static_cast<double>(updates_) / static_cast<double>(options_.updates),
            "update " + std::to_string(updates_) + ", " + std::to_string(service_->transitions()) +
                " transitions");
}

}  // namespace actor_learner
