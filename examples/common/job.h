#pragma once

#include <functional>
#include <string>

#include "sinew/sinew.h"

/// What the processes of a job have in common, whose rank 0 leads.
namespace examples {

/// What a program ends with when its job failed.
inline constexpr int kFailed = 3;

/// `name` and this process's RANK, as far as that is set.
std::string name_by_rank(const std::string& name);

/// Starts a worker and does `work` with it; returns what `work` does. The others stay until the
/// leader shuts down. When anything throws, says so in the name of `program`, waits for nobody, and
/// returns kFailed.
int run_job(const std::string& program, const std::function<sinew::Worker()>& start,
            const std::function<int(const sinew::Worker&)>& work);

}  // namespace examples
