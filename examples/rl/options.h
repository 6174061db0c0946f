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
  /// Discount of later rewards. 1 as in the tutorial.
  double gamma = 1.0;
  /// One of the quick ones.
  std::uint64_t seed = 4;
  /// Episodes from one line of the log to the next.
  int log_interval = 10;
  /// Steps of one episode, shared out among the observers.
  std::int64_t max_steps = 500;
  /// Give up after so many episodes.
  int episodes = 3000;
  /// Answer the requests of all observers together, by one forward pass.
  bool batch = false;
  /// With `batch`: milliseconds that the first request of a pass waits for the others.
  double max_wait_ms = 10;
  /// Environments of each observer.
  std::int32_t envs = 1;
  /// Seconds to wait for an observer when there is none left.
  double patience_s = 60;
  /// Where the reward curve goes; empty: nowhere.
  std::filesystem::path output = "rl-output";
};

/// Reads the command line of the agent. A mistake (or --help) is answered on the terminal; the
/// result is then the exit status of the program: 2 (or 0).
std::variant<Options, int> parse_options(int argc, const char* const* argv);

/// What is wrong with the options when there are so many observers; empty: nothing.
std::string problem_with(const Options& options, int observers);

}  // namespace rl
