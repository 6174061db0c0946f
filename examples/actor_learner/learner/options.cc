#include "learner/options.h"

#include "sinew/examples/common/flags.h"

namespace actor_learner {
namespace {

using examples::add_number;
using examples::add_whole;

void add_job_flags(CLI::App& app, Options& options) {
  app.add_option(
         "--init-method", options.init_method,
         "Where the job meets: tcp://HOST:PORT, which is this host, several such addresses, "
         "or file:///PATH")
      ->required();
  app.add_option("--bind-address", options.bind_address,
                 "HOST:PORT to listen on; without it, as the meeting place wants it");
  add_number(app, "--lease", options.lease_s, 1, 3600, "1 to 3600",
             "Seconds of silence after which an actor is lost");
}

void add_training_flags(CLI::App& app, Options& options) {
  add_whole(app, "--updates", options.updates, 1, 1'000'000'000, "End after so many updates");
  add_number(app, "--goal", options.goal, -10'000, 0, "-10000 to 0",
             "Mean return of an evaluation at which the task is solved");
  add_number(app, "--updates-per-transition", options.updates_per_transition, 0.001, 1000,
             "0.001 to 1000", "Wait for actors so as not to make more");
  add_whole(app, "--warm-up", options.warm_up, 1, 1'000'000'000,
            "Transitions before the first update");
  add_whole(app, "--batch", options.batch, 1, 1'000'000, "Transitions of an update");
  add_whole(app, "--capacity", options.capacity, 1, 100'000'000,
            "Transitions that the replay buffer holds");
  add_number(app, "--gamma", options.sac.gamma, 0, 1, "0 to 1", "Discount of later rewards");
  add_number(app, "--lr", options.sac.learning_rate, 1e-9, 1, "1e-9 to 1",
             "Learning rate of policy, critics and temperature");
  add_number(app, "--tau", options.sac.tau, 0, 1, "0 to 1",
             "How far the targets follow the critics in an update");
  add_number(app, "--reward-scale", options.sac.reward_scale, 1e-9, 1e9, "1e-9 to 1e9",
             "What rewards are multiplied by");
  examples::add_seed(app, options.seed);
}

void add_rhythm_flags(CLI::App& app, Options& options) {
  const auto add = [&app](const std::string& flag, std::int64_t& value, const std::string& help) {
    add_whole(app, flag, value, 1, 1'000'000'000, help);
  };
  add("--publish-every", options.publish_every,
      "Updates from one version of the weights to the next");
  add("--evaluate-every", options.evaluate_every, "Updates from one evaluation to the next");
  add("--checkpoint-every", options.checkpoint_every, "Updates from one checkpoint to the next");
  add_whole(app, "--evaluation-episodes", options.evaluation_episodes, 1, 100'000,
            "Episodes of an evaluation");
}

void add_file_flags(CLI::App& app, Options& options) {
  app.add_option("--output", options.output, "Folder for returns.csv and returns.svg")
      ->capture_default_str();
  app.add_option("--checkpoint", options.checkpoint,
                 "Folder for checkpoints, and of the one to go on from");
}

}  // namespace

std::variant<Options, int> parse_options(int argc, const char* const* argv) {
  Options options;
  CLI::App app(
      "Learns to swing a pendulum up (Pendulum-v1) from what actors play.\n\n"
      "  learner --init-method tcp://127.0.0.1:29500 --checkpoint DIR [FLAGS]\n"
      "  actor --init-method tcp://127.0.0.1:29500 --name actor1 [FLAGS]",
      "learner");
  add_job_flags(app, options);
  add_training_flags(app, options);
  add_rhythm_flags(app, options);
  add_file_flags(app, options);
  const examples::Parsed parsed = examples::parse(app, argc, argv);
  if (!parsed.go_on) return parsed.status;
  return options;
}

}  // namespace actor_learner
