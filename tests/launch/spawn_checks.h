#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "sinew/launch/spawn_error.h"
#include "sinew/testing/eventually.h"

/// What tests of spawned processes look at.
namespace sinew::testing {

// Only a failing test waits as long.
inline constexpr auto kJobPatience = std::chrono::minutes(2);

std::string contents(const std::string& path);
/// What those processes have written there that announced themselves.
std::vector<pid_t> announced(const std::string& folder);
bool is_running(pid_t pid);
/// All processes that run with that variable in their environment.
std::size_t count_with(const std::string& variable);
/// What `run` throws; the test has failed if it does not.
SpawnError failure_of(const std::function<void()>& run);
/// Of this program.
std::string own_path();

}  // namespace sinew::testing
