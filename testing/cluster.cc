#include "sinew/testing/cluster.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/calls/call_link.h"
#include "sinew/rpc/membership/membership.h"
#include "sinew/rpc/transport/inproc/inproc_network.h"
#include "sinew/rpc/worker/worker_core.h"
#include "sinew/rpc/worker/worker_parts.h"
#include "sinew/testing/internal/faulty_sink.h"
#include "sinew/testing/internal/step_queue.h"
#include "sinew/testing/leftovers.h"

namespace sinew::testing {
namespace {

constexpr auto kLastWords = std::chrono::milliseconds(300);

/// Runs `body` for each rank on a thread of its own, and waits for all.
void for_each_rank(std::size_t count, const std::function<void(std::size_t rank)>& body) {
  std::vector<std::thread> threads;
  threads.reserve(count);
  for (std::size_t rank = 0; rank < count; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

// Empty, and of this cluster alone: a file that a killed process has left may be in the way.
std::string new_meeting_file() {
  std::string path =
      std::filesystem::temp_directory_path() / absl::StrCat("sinew_cluster_", getpid(), "_XXXXXX");
  const int file = ::mkstemp(path.data());
  if (file < 0) {
    throw RpcError(ErrorCode::kUnavailable,
                   absl::StrCat("cannot make ", path, ": ", std::strerror(errno)));
  }
  ::close(file);
  return path;
}

bool has(const Worker& worker, const WorkerInfo& member) {
  const std::vector<WorkerInfo> members = worker.workers();
  return std::find(members.begin(), members.end(), member) != members.end();
}

}  // namespace

std::vector<std::string> worker_names(int count) {
  std::vector<std::string> names;
  for (int rank = 0; rank < count; ++rank) names.push_back(absl::StrCat("worker", rank));
  return names;
}

struct Cluster::State {
  struct Member {
    Worker worker;
    bool is_killed = false;
    bool runs() const { return worker.valid() && worker.is_running(); }
  };

  explicit State(ClusterOptions the_options)
      : options(std::move(the_options)),
        network(std::make_shared<internal::InprocNetwork>()),
        members(options.names.size()) {
    if (options.network == ClusterNetwork::kStepped) {
      steps = std::make_shared<internal::StepQueue>();
      stepped = std::make_unique<SteppedNetwork>(steps);
    }
    if (options.transport == ClusterTransport::kGrpc) meeting_file = new_meeting_file();
  }

  /// Also where not all have started.
  ~State() {
    let_all_go();
    ShutdownOptions now;
    now.graceful = false;
    for (const Member& member : members) {
      if (member.worker.valid()) member.worker.shutdown(now);
    }
    if (meeting_file.empty()) return;
    std::error_code ignored;
    std::filesystem::remove(meeting_file, ignored);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  std::size_t index_of(std::string_view name) const {
    const auto found = std::find(options.names.begin(), options.names.end(), name);
    if (found != options.names.end()) {
      return static_cast<std::size_t>(found - options.names.begin());
    }
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrCat("the cluster has no worker '", std::string(name), "', but '",
                                absl::StrJoin(options.names, "', '"), "'"));
  }
  Member& at(std::string_view name) { return members[index_of(name)]; }
  /// Those that run, but for this one.
  std::vector<Worker> others_than(const Worker& worker) const {
    std::vector<Worker> others;
    for (const Member& member : members) {
      if (member.runs() && !(member.worker == worker)) others.push_back(member.worker);
    }
    return others;
  }
  void start(std::size_t rank);
  /// Nothing waits for the test any more.
  void let_all_go() {
    faults.clear();
    if (steps != nullptr) steps->end();
  }
  void let_go_of(const std::string& worker) {
    if (steps != nullptr) steps->let_go_of(worker);
  }

  // Names are added.
  ClusterOptions options;
  const std::shared_ptr<internal::InprocNetwork> network;
  std::string meeting_file;
  Faults faults;
  // Null without steps.
  std::shared_ptr<internal::StepQueue> steps;
  std::unique_ptr<SteppedNetwork> stepped;
  // By rank. References to them stay valid.
  std::deque<Member> members;
};

void Cluster::State::start(std::size_t rank) {
  WorkerOptions worker;
  worker.name = options.names[rank];
  worker.methods = options.methods;
  worker.rank = static_cast<int>(rank);
  if (options.world == ClusterWorld::kFixed) {
    worker.world_size = static_cast<int>(options.names.size());
  }
  worker.num_threads = 4;
  // The machine may have much else to do.
  worker.lease = std::chrono::minutes(2);
  if (options.transport == ClusterTransport::kGrpc) {
    worker.init_method = absl::StrCat("file://", meeting_file);
  } else {
    worker.init_method = "inproc://cluster";
    worker.network = network;
  }
  internal::parts_of(worker).wrap_reply_sink = internal::make_faulty_sinks(faults.table_, steps);
  if (options.tweak) options.tweak(static_cast<int>(rank), worker);
  members[rank] = {init_rpc(std::move(worker))};
}

Cluster::Cluster(std::vector<std::string> names, MethodTable methods)
    : Cluster([&] {
        ClusterOptions options;
        options.names = std::move(names);
        options.methods = std::move(methods);
        return options;
      }()) {}

Cluster::Cluster(ClusterOptions options) : state_(std::make_unique<State>(std::move(options))) {
  const std::size_t count = state_->members.size();
  if (count == 0) throw RpcError(ErrorCode::kInvalidArgument, "a cluster has a worker at least");
  // In an open world one worker must come first.
  const std::size_t alone = state_->options.world == ClusterWorld::kOpen ? 1 : 0;
  if (alone == 1) state_->start(0);
  std::vector<std::exception_ptr> errors(count);
  for_each_rank(count - alone, [&](std::size_t number) {
    const std::size_t rank = number + alone;
    try {
      state_->start(rank);
    } catch (...) {
      errors[rank] = std::current_exception();
    }
  });
  for (const std::exception_ptr& error : errors) {
    if (error != nullptr) std::rethrow_exception(error);
  }
  // Who came first hears of the others a moment later.
  for (const State::Member& each : state_->members) {
    wait_until(absl::StrCat("worker '", each.worker.name(), "' knows all others"),
               [&] { return each.worker.workers().size() == count; });
  }
  if (state_->steps != nullptr) state_->steps->begin();
}

Cluster::~Cluster() = default;

int Cluster::size() const { return static_cast<int>(state_->members.size()); }

const Worker& Cluster::worker(std::string_view name) const { return state_->at(name).worker; }

const Worker& Cluster::worker(int rank) const {
  if (rank >= 0 && rank < size()) return state_->members[static_cast<std::size_t>(rank)].worker;
  throw RpcError(ErrorCode::kInvalidArgument,
                 absl::StrCat("the cluster has no worker ", rank, ", but ", size(), " of them"));
}

Faults& Cluster::faults() { return state_->faults; }

SteppedNetwork& Cluster::network() {
  if (state_->stepped != nullptr) return *state_->stepped;
  throw RpcError(ErrorCode::kFailedPrecondition,
                 "the network of the cluster is not stepped: set ClusterOptions::network to "
                 "ClusterNetwork::kStepped");
}

// ---- Workers that come and go.

void Cluster::kill(std::string_view name) {
  State::Member& member = state_->at(name);
  const Worker& worker = member.worker;
  ShutdownOptions now;
  now.graceful = false;
  worker.shutdown(now);
  member.is_killed = true;
  state_->let_go_of(worker.name());
  for (const Worker& other : state_->others_than(worker)) {
    wait_until(absl::StrCat("worker '", other.name(), "' has lost worker '", worker.name(), "'"),
               [&] { return !has(other, worker.info()); });
  }
}

const Worker& Cluster::start(const std::string& name) {
  State& state = *state_;
  const auto& names = state.options.names;
  const bool is_new = std::find(names.begin(), names.end(), name) == names.end();
  if (is_new && state.options.world == ClusterWorld::kOpen) {
    state.options.names.push_back(name);
    state.members.emplace_back();
  }
  const std::size_t rank = state.index_of(name);
  if (state.members[rank].runs()) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrCat("worker '", name, "' of the cluster runs already"));
  }
  state.start(rank);
  const Worker& worker = state.members[rank].worker;
  for (const Worker& other : state.others_than(worker)) {
    wait_until(absl::StrCat("worker '", other.name(), "' has heard of worker '", name, "'"),
               [&] { return has(other, worker.info()); });
  }
  return worker;
}

void Cluster::evict(std::string_view name) {
  const Worker& worker = state_->at(name).worker;
  const std::vector<Worker> others = state_->others_than(worker);
  if (others.size() < 2) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrCat("worker '", worker.name(),
                                "' can be evicted by two others or more; "
                                "of the cluster there run ",
                                others.size()));
  }
  const WorkerInfo victim = worker.info();
  // The registrar takes it off the list.
  const auto tell = [&victim](const Worker& each) {
    WorkerAccess::core(each)->membership().on_worker_lost(victim, true, "a test has it evicted");
  };
  tell(worker);
  for (const Worker& other : others) tell(other);
  for (const Worker& other : others) {
    wait_until(absl::StrCat("worker '", other.name(), "' has lost worker '", victim.name, "'"),
               [&] { return !has(other, victim); });
  }
  wait_until(absl::StrCat("worker '", victim.name, "' has heard that it is evicted"),
             [&] { return worker.membership_state() == MembershipState::kEvicted; });
  state_->let_go_of(victim.name);
}

void Cluster::replace(std::string_view name, Worker worker) {
  state_->at(name) = {std::move(worker)};
}

bool Cluster::break_connection(std::string_view one, std::string_view other) {
  const auto link =
      WorkerAccess::core(state_->at(one).worker)->link(state_->at(other).worker.info());
  return link.ok() && (*link)->runner().break_connection();
}

// ---- What is left.

std::vector<std::string> Cluster::leftovers() const {
  std::vector<std::string> lines;
  for (const State::Member& member : state_->members) {
    if (!member.runs()) continue;
    for (std::string& line : testing::leftovers(member.worker)) lines.push_back(std::move(line));
  }
  return lines;
}

void Cluster::wait_until_at_rest(std::chrono::nanoseconds patience) const {
  std::vector<std::string> lines;
  if (eventually([&] { return (lines = leftovers()).empty(); }, patience)) return;
  throw Failure(absl::StrCat("the cluster does not come to rest:\n", absl::StrJoin(lines, "\n")));
}

void Cluster::shutdown() {
  const std::vector<std::string> failures = try_shutdown();
  if (failures.empty()) return;
  throw Failure(
      absl::StrCat("the cluster leaves something behind:\n", absl::StrJoin(failures, "\n")));
}

std::vector<std::string> Cluster::try_shutdown() {
  ShutdownOptions options;
  options.timeout = state_->options.shutdown_timeout;
  options.fail_on_leaks = true;
  state_->let_all_go();
  // Those that were killed, or are evicted, have left the job without a word.
  std::vector<Worker> ending;
  for (const State::Member& member : state_->members) {
    const Worker& worker = member.worker;
    if (!worker.valid() || member.is_killed) continue;
    if (worker.membership_state() != MembershipState::kEvicted) ending.push_back(worker);
  }
  // Where workers come and go each ends for itself, and what others have let go of is on its way.
  eventually([&] { return leftovers().empty(); }, kLastWords);
  internal::Mutex mutex;
  std::vector<std::string> failures;
  for_each_rank(ending.size(), [&](std::size_t index) {
    try {
      ending[index].shutdown(options);
    } catch (const std::exception& error) {
      const internal::MutexLock lock(mutex);
      failures.push_back(absl::StrCat(ending[index].name(), ": ", error.what()));
    }
  });
  for (const Worker& worker : ending) {
    for (std::string& line : testing::leftovers(worker)) failures.push_back(std::move(line));
  }
  return failures;
}

}  // namespace sinew::testing
