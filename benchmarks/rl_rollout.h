#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>

#include "sinew/benchmarks/measure.h"

namespace sinew::bench {

/// Runs the RL example of the build that `program` (argv[0]) belongs to, and returns its
/// environment steps per second while episodes are played. The same work as peers/torch_rl.py: the
/// same discount, the same number of steps after two episodes that do not count, and both calls of
/// a step waited for.
inline double rollout_steps_per_s(const Options& options, const std::string& program, int observers,
                                  const std::string& flags) {
  const std::filesystem::path build =
      std::filesystem::canonical(program).parent_path().parent_path();
  const auto quoted = [&build](const char* name) {
    const std::filesystem::path file = build / name;
    if (!std::filesystem::exists(file)) {
      throw std::runtime_error(file.string() +
                               " is missing: build sinew-run, rl_agent and rl_observer too");
    }
    return "'" + file.string() + "'";
  };
  const std::string command =
      quoted("launch/sinew-run") + " --role agent=1 " + quoted("examples/rl/rl_agent") +
      " --bench --json --sync-rewards --gamma 0.1 --episodes 100000 --bench-steps " +
      (options.quick() ? "300 " : "6000 ") + flags +
      " --role observer=" + std::to_string(observers) + " " + quoted("examples/rl/rl_observer") +
      " 2>/dev/null";
  std::string output;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(popen(command.c_str(), "r"), &pclose);
  if (pipe == nullptr) throw std::runtime_error("cannot run " + command);
  char buffer[512];
  while (std::fgets(buffer, sizeof buffer, pipe.get()) != nullptr) output += buffer;
  static const std::string kKey = "\"rl_steps_per_s\": ";
  const std::size_t at = output.find(kKey);
  if (at == std::string::npos) throw std::runtime_error("no result came from " + command);
  return std::strtod(output.c_str() + at + kKey.size(), nullptr);
}

inline void measure_rollouts(const Options& options, const std::string& program) {
  if (options.wants("rl_steps_per_s_1")) {
    options.report("rl_steps_per_s_1", rollout_steps_per_s(options, program, 1, ""));
  }
  if (options.wants("rl_steps_per_s_4")) {
    options.report("rl_steps_per_s_4", rollout_steps_per_s(options, program, 4, ""));
  }
  if (options.wants("rl_batched_steps_per_s_4")) {
    options.report("rl_batched_steps_per_s_4", rollout_steps_per_s(options, program, 4, "--batch"));
  }
}

}  // namespace sinew::bench
