#pragma once

#include "sinew/launch/internal/spawn_child.h"

namespace sinew::internal {

/// Where a fork server finds its end of the channel to its parent; that of the task is
/// kTaskDescriptor, as in all spawned processes.
inline constexpr int kChannelDescriptor = kReportDescriptor;

/// What a fork server does: it forks the processes that its parent asks for, and tells how they
/// end. It never returns there, but in each of these processes, with what that one was spawned for.
/// They are as after exec, but for what the program has done until here.
///
/// For the only thread of a process. If this one cannot be a fork server the parent is told why.
SpawnTicket serve_forks(SpawnTicket::Kind kind);

}  // namespace sinew::internal
