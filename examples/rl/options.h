#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <variant>

namespace rl {

/// Starts an agent and an observer.
inline constexpr char kCommand[] =
    "sinew-run --role agent=1 rl_agent --role observer=1 rl_observer";

/// What the command line of the agent asks for.
struct Options {
  /// As in the tutorial. Solves the task with every seed that was tried, with one observer in 200
  /// to 1,500 episodes.
  double gamma = 1.0;
  /// One of the quick ones.
  std::uint64_t seed = 13;
  /// Episodes from one line of the log to the next.
  int log_interval = 10;
  /// Steps of one episode, shared out among the observers.
  int max_steps = 500;
  /// Answer the requests of all observers together.
  bool batch = false;
  /// Wait for each reward to arrive before the next step.
  bool sync_rewards = false;
  /// Give up (or, with `bench`, end) after so many episodes.
  int episodes = 3000;
  /// Where the reward curve goes; empty: nowhere.
  std::filesystem::path output = "rl-output";
  /// Threads that run handlers; 0: the worker's default. The agent's handlers take turns at one
  /// policy, and an observer plays one episode at a time, so more would only be woken in vain.
  int threads = 1;
  /// Measure: don't stop when the task is solved, write no curve, and don't count the first two
  /// episodes.
  bool bench = false;
  /// With `bench`: end once so many steps have been timed; 0: play `episodes`.
  std::int64_t bench_steps = 0;
  /// Print one JSON object on stdout, and everything else on stderr.
  bool json = false;
};

/// Reads the command line of the agent, or of an observer, which knows `threads` only. A mistake
/// (or --help) is answered on the terminal; the result is then the exit status of the program: 2
/// (or 0).
std::variant<Options, int> parse_agent_options(int argc, char** argv);
std::variant<Options, int> parse_observer_options(int argc, char** argv);

/// What is wrong with the options when there are so many observers; empty: nothing.
std::string problem_with(const Options& options, int observers);

}  // namespace rl
