#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sinew/rpc/base/found_job.h"
#include "sinew/rpc/device_map.h"
#include "sinew/rpc/method_table.h"
#include "sinew/rpc/transport/credentials.h"

namespace sinew {

class Worker;

namespace internal {
class InprocNetwork;
struct WorkerParts;
}  // namespace internal

/// How a worker starts. Only `name` (and usually `methods`) must be set; what is unset comes from
/// the environment as init_method says.
struct WorkerOptions {
  /// 1 to 128 characters of A-Z a-z 0-9 _ . : -; unique in the job.
  std::string name;
  /// What others may call here.
  MethodTable methods;

  /// Where the workers of the job meet:
  ///   env://                   as sinew-run, torchrun, Slurm, an MPI or you say; docs/launch.md
  ///   tcp://host:port          rank 0 listens there; ?rank=..&world_size=.. or the fields below
  ///   tcp://h1:port,h2:port    several addresses of that one worker; see docs/membership.md
  ///   file:///absolute/path    a file that all workers can lock, and only this user can write
  ///   etcd://h1:2379,h2:2379/prefix   an etcd; the prefix is this job's; see docs/membership.md
  ///   inproc://name            several workers of one process, with `network`
  std::string init_method = "env://";
  /// 0 to world_size - 1. Unset in open membership: the smallest free one; over
  /// tcp:// and env:// not 0, which is the founder's.
  std::optional<int> rank;
  /// Workers in the job. 0 or (with env://) absent: open membership, workers come and go.
  std::optional<int> world_size;
  /// Whether this worker begins the job when it finds none. Others look for it until join_timeout
  /// is over. Unset: kRankZero in a fixed world, and over tcp:// and env://; kAlways in open
  /// membership over file://, etcd:// and inproc://. See docs/membership.md.
  std::optional<FoundJob> found_job;
  /// Workers of different jobs refuse each other.
  std::string job = "default";
  /// A secret of the job: a process that does not know it cannot join, call, or ask about methods,
  /// and workers do not talk to it. 16 to 1024 visible ASCII characters. Empty: that of the
  /// environment (SINEW_JOB_TOKEN, or SINEW_JOB_TOKEN_FILE with a path; sinew-run and spawn set
  /// it), or none. See docs/deploy.md.
  std::string job_token;
  /// Time for all workers to meet.
  std::chrono::nanoseconds join_timeout = std::chrono::seconds(60);

  /// "host:port" to listen on; port 0 takes any. Unset: loopback when the rendezvous is on
  /// loopback, else the interface that routes to it.
  std::string bind_address;
  /// Host (or "host:port") that others are told to connect to, when it differs from what is bound
  /// (containers, NAT).
  std::string advertise_address;
  /// Insecure credentials work on loopback only.
  Credentials credentials = Credentials::insecure();
  /// Whatever would send in the clear refuses to start: this worker without TLS, UCX, NCCL, process
  /// groups over it, etcd without TLS. SINEW_ENCRYPTED_ONLY=1 in the environment sets it for all
  /// workers and groups of a process. Memory that processes of one host share stays as it is.
  bool encrypted_only = false;
  /// Workers of one host and user talk through Unix sockets and copy large tensors from each
  /// other's memory. False: everything goes by TCP.
  bool same_host = true;
  /// Large tensors also go by UCX (RDMA, or a TCP fabric that is trusted: UCX does not encrypt)
  /// where `same_host` does not serve; see docs/ucx.md. init_rpc() fails with kInvalidArgument when
  /// the credentials use TLS, with kUnimplemented when Sinew was built without UCX, and with UCX's
  /// own text when that does not start.
  bool ucx = false;

  /// Whether this worker tells all that may call it the names and signatures of `methods` (by its
  /// method "sinew.methods"; see docs/clients.md). Clients of other languages, which have no
  /// headers of it, look there for what they can call; strangers do too where credentials are
  /// insecure.
  bool list_methods = false;
  /// Largest request of a client that is no worker, tensors included; at most 1 GiB, and a quarter
  /// of the memory that this process may use.
  std::size_t max_client_request_bytes = std::size_t{64} << 20;

  /// Time limit of calls that set none. kNoTimeout: none.
  std::chrono::nanoseconds default_timeout = std::chrono::seconds(60);
  /// Threads that run handlers and continuations; 0: one per core that control groups and affinity
  /// leave, at least 4, fewer where the process may start few threads. A handler that waits for a
  /// Sinew future gives its place to another thread meanwhile.
  std::size_t num_threads = 0;
  /// How long a thread that waits for the network polls before it sleeps. It does so only where
  /// waits have been short lately, no other thread wants the core, and control groups leave the
  /// process more than one core, and for eight times as long as a wake-up takes on this host; see
  /// docs/threads.md. 0: it always sleeps, which is slower and saves power. The environment
  /// variable SINEW_MAX_POLL_US (microseconds) bounds it for all workers of a process.
  std::chrono::nanoseconds max_poll = std::chrono::nanoseconds::max();
  /// How many handlers may wait at once. One more fails with kResourceExhausted and shows its chain
  /// of calls.
  std::size_t max_blocked_threads = 256;

  /// How often peers are asked whether they live, a third of the lease at most; 0: seven times a
  /// lease, and every 2 s at least.
  std::chrono::nanoseconds heartbeat_interval = std::chrono::nanoseconds(0);
  /// A peer that has not answered for so long is lost permanently; a worker that returns joins
  /// anew.
  std::chrono::nanoseconds lease = std::chrono::seconds(15);

  /// Bytes of calls, and of results, that may wait here for one peer; see docs/backpressure.md.
  /// Calls beyond that fail with kResourceExhausted, or wait (Peer::call()); while results exceed
  /// it, no further call of that peer is started.
  std::size_t send_window_bytes = std::size_t{256} << 20;
  /// Bytes of one peer's calls that may wait here for a thread (those of methods that return
  /// futures: until they are answered), and of results that may be on their way from it; a quarter
  /// of the memory that control groups leave, where that is less.
  std::size_t receive_window_bytes = std::size_t{256} << 20;
  /// Largest message, tensors included.
  std::size_t max_message_bytes = std::size_t{16} << 30;

  /// Where tensors on this worker's devices arrive at others, by their names; also at this worker
  /// itself, for calls to itself. Devices that others do not have, or that several of this worker's
  /// are mapped to, make the start fail with kInvalidArgument; so do unknown workers, unless the
  /// membership is open: there a call fails. See docs/gpu.md.
  std::map<std::string, DeviceMap> device_maps;
  /// The devices that messages may use here, by either side's map. Empty: all.
  std::vector<c10::Device> devices;
  /// Tensors go from GPU to GPU by NCCL where Sinew was built with it, both workers have GPUs, and
  /// both say so here. Otherwise by gRPC, through host memory.
  bool nccl = true;
  /// NCCL neither encrypts nor authenticates, so with credentials that use TLS tensors do not go by
  /// it, with a line in the log, unless this is set: for networks between GPUs that are trusted.
  bool nccl_allow_unencrypted = false;
  /// The most blocks of threads (CTAs) that a transfer by NCCL takes of a GPU; 0: as NCCL decides.
  int nccl_max_ctas = 0;

  /// Set: a worker that is evicted rejoins by itself (Worker::rejoin), again and again until it
  /// succeeds or is shut down, with growing pauses of 30 s at most and a line of the log each. It
  /// gets the new worker, on a thread where it may block, and keeps the handle: the new worker ends
  /// with its last one. Calls come one at a time, in the order of the workers: the next one is not
  /// begun before this one has returned. What it throws is logged.
  std::function<void(const Worker& worker)> on_rejoined;

  /// Joins workers of one process; needed by inproc://. See InprocNetwork.
  std::shared_ptr<internal::InprocNetwork> network;

  /// For the layers of Sinew and for tests; see internal::parts_of().
  std::shared_ptr<const internal::WorkerParts> parts;
};

/// How a worker ends.
struct ShutdownOptions {
  /// Graceful: waits until every worker of a fixed world has called shutdown too, until no call is
  /// under way anywhere, and until references are given up. Otherwise only this worker stops, at
  /// once; its calls fail.
  bool graceful = true;
  /// Bound of the whole graceful shutdown. Unset: the others are waited for as long as they live
  /// (one that is dead is lost when its lease ends), and what follows has 60 s. While the registrar
  /// does not answer they are not waited for. Positive; otherwise that fails with kInvalidArgument,
  /// and the worker ends without grace.
  std::optional<std::chrono::nanoseconds> timeout = std::nullopt;
  /// Throw when references are left (the text lists them); otherwise they are only logged.
  bool fail_on_leaks = false;
};

/// Why Worker::serve_until_done() has returned.
enum class ServedUntil {
  /// All workers that worked have finished.
  kJobIsOver,
  /// The process was asked to end, or another thread has shut the worker down.
  kAskedToEnd,
};

}  // namespace sinew
