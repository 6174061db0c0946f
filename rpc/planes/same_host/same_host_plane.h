#pragma once

#include <memory>

#include "sinew/rpc/planes/pull_plane.h"

namespace sinew::internal {

/// Fetches out of the memory of other processes on this host with cross-memory attach
/// (process_vm_readv): one copy, and nothing to do for the owner. Works between processes of one
/// user that see each other's process ids, where no rule of the system forbids it (yama, seccomp).
///
/// The proof: the owner keeps a digest of the challenge in its memory and tells where; who can read
/// it there has found the right process. Each fetch reads the digest too, after the data and in the
/// same system call, and close() wipes it: so data that the owner has freed, or of another process
/// with the same id, is never taken for what was located.
std::unique_ptr<PullPlane> make_same_host_plane();

}  // namespace sinew::internal
