#include "sinew/launch/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sinew/launch/internal/code_address.h"
#include "sinew/launch/internal/spawn_child.h"
#include "sinew/launch/internal/spawn_job.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/internal/system_call.h"

namespace sinew {
namespace internal {
namespace {

constexpr int kMostProcesses = 4096;
constexpr int kMostNodes = 65536;

/// What init_launch() has found. Never destroyed: processes may be spawned to the end.
struct LaunchState {
  std::vector<std::string> arguments;
  bool is_daemon = false;
};
std::atomic<const LaunchState*> launch_state = nullptr;

[[noreturn]] void refuse(ErrorCode code, std::string text) {
  throw RpcError(code, absl::StrCat("spawn: ", text));
}

const LaunchState& require_launch_state() {
  const LaunchState* state = launch_state.load();
  if (state == nullptr) {
    refuse(ErrorCode::kFailedPrecondition,
           "call sinew::init_launch(argc, argv) first in main(): spawned processes begin there");
  }
  if (state->is_daemon) {
    refuse(ErrorCode::kFailedPrecondition,
           "this process was spawned as a daemon, and these may not start processes");
  }
  return *state;
}

void check(int nprocs, const SpawnOptions& options) {
  if (nprocs < 1 || nprocs > kMostProcesses) {
    refuse(ErrorCode::kInvalidArgument,
           absl::StrCat("nprocs is ", nprocs, "; write a number from 1 to ", kMostProcesses));
  }
  if (options.grace < std::chrono::milliseconds(0)) {
    refuse(ErrorCode::kInvalidArgument, "SpawnOptions::grace is negative");
  }
  for (const auto& [name, value] : options.environment) {
    const bool is_name = !name.empty() && name.find('=') == std::string::npos &&
                         name.find('\0') == std::string::npos;
    if (!is_name || value.find('\0') != std::string::npos) {
      refuse(ErrorCode::kInvalidArgument,
             absl::StrCat("SpawnOptions::environment has a name or value that cannot be one: '",
                          printable(name, 256), "'"));
    }
  }
  if (options.nodes < 1 || options.nodes > kMostNodes || options.node_rank < 0 ||
      options.node_rank >= options.nodes) {
    refuse(ErrorCode::kInvalidArgument,
           absl::StrCat("SpawnOptions::node_rank is ", options.node_rank, " of ", options.nodes,
                        " nodes; they count from 0, and there may be ", kMostNodes));
  }
  if (options.master_addr.empty()) {
    refuse(ErrorCode::kInvalidArgument, "SpawnOptions::master_addr is empty");
  }
  if (options.master_port < 0 || options.master_port > 65535 ||
      (options.master_port == 0 && options.nodes > 1)) {
    refuse(
        ErrorCode::kInvalidArgument,
        absl::StrCat("SpawnOptions::master_port is ", options.master_port,
                     "; write a port up to 65535, or 0 to have one picked if there is one node"));
  }
}

/// Where it is ignored, it cannot be known how a child ended.
void check_child_signal() {
  struct sigaction action {};
  ::sigaction(SIGCHLD, nullptr, &action);
  if (action.sa_handler == SIG_IGN || (action.sa_flags & SA_NOCLDWAIT) != 0) {
    refuse(ErrorCode::kFailedPrecondition,
           "this process ignores SIGCHLD, so that it does not learn how processes end: set it to "
           "SIG_DFL, or to a handler without SA_NOCLDWAIT");
  }
}

FileDescriptor write_task(const SpawnMessageWriter& message) {
  FileDescriptor task(::memfd_create("sinew-spawn-task", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!task.valid()) {
    throw_error(absl::Status(absl::ErrnoToStatusCode(errno),
                             absl::StrCat("spawn: cannot make a file in memory: ",
                                          call_failure("memfd_create", errno))));
  }
  if (absl::Status written = message.write(task.number(), 0); !written.ok()) throw_error(written);
  // All processes have the same.
  ::fcntl(task.number(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
  return task;
}

CodeAddress locate(std::uintptr_t address) {
  absl::StatusOr<CodeAddress> code = locate_code(address);
  if (!code.ok()) throw_error(code.status());
  return *std::move(code);
}

/// "exe" is what the kernel has made of /proc/self/exe.
void name_process(const std::string& program) {
  ::prctl(PR_SET_NAME, program.substr(program.rfind('/') + 1).c_str());
}

}  // namespace

SpawnMessageWriter begin_spawn(std::uintptr_t function, SpawnTrampoline trampoline) {
  require_launch_state();
  using CodeValue = std::tuple<std::string, std::uint64_t, std::string>;
  const CodeAddress run = locate(function);
  const CodeAddress by = locate(reinterpret_cast<std::uintptr_t>(trampoline));
  SpawnMessageWriter message;
  ValueWriter writer = message.next();
  Codec<std::pair<CodeValue, CodeValue>>::encode(
      writer, {{run.module, run.offset, run.build_id}, {by.module, by.offset, by.build_id}});
  return message;
}

ProcessContext start_spawn(const SpawnMessageWriter& message, int nprocs,
                           const SpawnOptions& options) {
  const LaunchState& state = require_launch_state();
  check(nprocs, options);
  check_child_signal();
  return ProcessContext(std::make_unique<SpawnJob>(static_cast<std::size_t>(nprocs), options,
                                                   write_task(message), state.arguments));
}

}  // namespace internal

void init_launch(int argc, char** argv) {
  auto state = std::make_unique<internal::LaunchState>();
  state->arguments.assign(argv, argv + argc);
  const char* const text = std::getenv(internal::SpawnTicket::kVariable);
  if (text == nullptr) {
    if (internal::launch_state.load() == nullptr) internal::launch_state = state.release();
    return;
  }
  absl::StatusOr<internal::SpawnTicket> ticket = internal::SpawnTicket::parse(text);
  const bool has_task = ::fcntl(internal::kTaskDescriptor, F_GETFD) >= 0 &&
                        ::fcntl(internal::kReportDescriptor, F_GETFD) >= 0;
  // What this one starts is not spawned by the one that spawned it.
  ::unsetenv(internal::SpawnTicket::kVariable);
  if (!ticket.ok() || !has_task) {
    std::cerr << "init_launch: "
              << (ticket.ok() ? "the environment variable SINEW_SPAWN is set, but this process was "
                                "not spawned: unset it"
                              : ticket.status().message())
              << "\n";
    std::exit(1);
  }
  state->is_daemon = ticket->kind == internal::SpawnTicket::Kind::kDaemon;
  if (argc > 0) internal::name_process(state->arguments.front());
  internal::launch_state = state.release();
  std::exit(internal::run_spawned(*ticket));
}

}  // namespace sinew
