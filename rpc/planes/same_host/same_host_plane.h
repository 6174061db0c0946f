#pragma once

#include <chrono>
#include <memory>

#include "sinew/rpc/planes/pull_plane.h"
#include "sinew/rpc/planes/same_host/peer_process.h"

namespace sinew::internal {

struct SameHostOptions {
  /// How long the ends of a connection may take to meet.
  std::chrono::milliseconds meeting_timeout = std::chrono::seconds(5);
  /// For tests of what older kernels do.
  PeerProcess::Source process_source = PeerProcess::Source::kSocket;
};

/// Fetches out of the memory of other processes on this host with cross-memory attach
/// (process_vm_readv): one copy, and nothing to do for the owner. Works between processes of one
/// user and the same namespaces (networks, processes, users), where no rule of the system forbids
/// it (yama, seccomp).
///
/// Whose memory is read is the kernel's word: the two ends of a connection meet at a Unix socket,
/// show each other there that they are its ends, and take hold of the process at the other end.
/// What they need to read each other goes over that socket too, and locations are sealed with it:
/// who is in between on the connection, or at its other end in another process, names no addresses.
/// Each fetch reads a secret word after the data, in the same system call, and close() wipes it: so
/// data that the owner has freed is never taken for what was located.
std::unique_ptr<PullPlane> make_same_host_plane(const SameHostOptions& options = {});

}  // namespace sinew::internal
