#include "sinew/launch/run/run_options.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <ctime>
#include <iostream>
#include <set>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "sinew/launch/run/host_devices.h"
#include "sinew/rpc/base/environment.h"
#include "sinew/rpc/base/host_limits.h"
#include "sinew/rpc/base/job_token.h"
#include "sinew/rpc/base/loopback.h"
#include "sinew/version.h"

namespace sinew::internal {
namespace {

constexpr char kDefaultRole[] = "default";
constexpr int kMostProcesses = 4096;
constexpr int kMostNodes = 65536;
constexpr int kMostSeconds = 7 * 24 * 3600;
constexpr char kHelp[] =
    "Starts the processes of a job on this host, tells each its place in its environment, and "
    "ends all when one fails.\n\n"
    "  sinew-run [FLAGS] --nproc N PROGRAM [ARGUMENTS]\n"
    "  sinew-run [FLAGS] --role NAME=N PROGRAM [ARGUMENTS] --role NAME=N PROGRAM [ARGUMENTS] ...\n"
    "  sinew-run --registrar [--bind HOST:PORT] [FLAGS]     holds a job's list of members, and is "
    "no worker\n";
constexpr char kFooter[] =
    "Each process gets RANK, LOCAL_RANK, GROUP_RANK, ROLE_RANK, ROLE_NAME, WORLD_SIZE,\n"
    "LOCAL_WORLD_SIZE, GROUP_WORLD_SIZE, ROLE_WORLD_SIZE, MASTER_ADDR, MASTER_PORT,\n"
    "TORCHELASTIC_RESTART_COUNT, TORCHELASTIC_MAX_RESTARTS and TORCHELASTIC_RUN_ID; and\n"
    "OMP_NUM_THREADS=1 if that is not set and there are several processes.\n\n"
    "SIGINT and SIGTERM are passed on, and a second one kills. The exit status is that of the\n"
    "process that failed first (128 + N for signal N), 0 if all ended well, 2 for a mistake in\n"
    "these flags.";

template <class Number>
CLI::Validator between(Number low, Number high, const std::string& what) {
  return CLI::Validator(
      [=](const std::string& text) -> std::string {
        Number value{};
        const char* end = text.data() + text.size();
        const auto parsed = std::from_chars(text.data(), end, value);
        // Written so that NaN fails too.
        const bool is_good =
            parsed.ec == std::errc() && parsed.ptr == end && value >= low && value <= high;
        if (is_good) return {};
        return absl::StrCat("must be ", what, " from ", low, " to ", high, ", and '", text,
                            "' is not");
      },
      "");
}

/// The values as they are on the command line.
struct Flags {
  std::string processes = "1";
  std::vector<std::string> roles;
  double back_off_s = 1;
  double grace_s = 10;
  double leave_grace_s = 10;
  bool prefix = false;
  bool table = false;
};

/// How many processes `--nproc` asks for; `text` has passed process_count().
int process_count_of(const std::string& text) {
  if (text == "cpu") return read_host_limits().cores();
  if (text == "gpu") return usable_gpus();
  if (text == "auto") return usable_gpus() > 0 ? usable_gpus() : read_host_limits().cores();
  return std::stoi(text);
}

CLI::Validator process_count() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        if (text == "gpu" && usable_gpus() == 0) return "is gpu, but no GPU is to be seen here";
        if (text == "gpu" || text == "cpu" || text == "auto") return {};
        return between<int>(1, kMostProcesses, "cpu, gpu, auto or a whole number")(text);
      },
      "");
}

CLI::Option* add_whole(CLI::App& app, const std::string& flag, int& value, int low, int high,
                       const std::string& help) {
  return app.add_option(flag, value, help)
      ->check(between<int>(low, high, "a whole number"))
      ->capture_default_str();
}

void add_seconds(CLI::App& app, const std::string& flag, double& value, const std::string& help) {
  app.add_option(flag, value, help)
      ->check(between<double>(0, kMostSeconds, "a number of seconds"))
      ->capture_default_str();
}

void add_flags(CLI::App& app, Flags& flags, RunOptions& options) {
  CLI::Option* processes =
      app.add_option("-n,--nproc,--nproc-per-node,--nproc_per_node", flags.processes,
                     "Processes on this host: a number; cpu or gpu: one for each; auto: gpu if "
                     "there are any, else cpu")
          ->check(process_count())
          ->capture_default_str();
  CLI::Option* roles =
      app.add_option("--role", flags.roles,
                     "NAME=N: a part of the job, of N processes that run the program behind it. "
                     "Ranks are given in the order of the roles")
          ->allow_extra_args(false);
  roles->excludes(processes);
  add_whole(app, "--nnodes", options.nodes, 1, kMostNodes,
            "Hosts on which sinew-run is started, each with the same roles and numbers");
  add_whole(app, "--node-rank,--node_rank", options.node_rank, 0, kMostNodes - 1,
            "Which of them this is, from 0");
  app.add_option("--master-addr,--master_addr", options.master_addr,
                 "Host of rank 0, where the processes meet; 127.0.0.1 unless there are several "
                 "hosts");
  add_whole(app, "--master-port,--master_port", options.master_port, 0, 65535,
            "Port where the processes meet; 0 picks a free one");
  app.add_option("--leader", options.leader,
                 "ROLE or RANK: the job is over when these have ended with 0. Without it, when all "
                 "have");
  add_seconds(app, "--leave-grace", flags.leave_grace_s,
              "Seconds that the others have to end by themselves when the leader has");
  add_seconds(app, "--grace", flags.grace_s,
              "Seconds between telling a process to end (SIGTERM) and killing it");
  add_whole(app, "--max-restarts,--max_restarts", options.max_restarts, 0, 1000000,
            "How often the whole job is started again after a failure");
  add_seconds(
      app, "--restart-back-off", flags.back_off_s,
      "Seconds before the first restart; twice as many before each further one, 60 at most");
  app.add_option("--run-id,--rdzv-id,--rdzv_id", options.run_id,
                 "Name of this run, for TORCHELASTIC_RUN_ID and the log folder");
  app.add_option("--log-dir,--log_dir", options.log_dir,
                 "Writes DIR/RUN_ID/attempt_A/rank_R/stdout.log and stderr.log rather than to the "
                 "terminal (with --prefix: to both)");
  app.add_flag("--prefix", flags.prefix,
               "Puts role and rank in front of each line of output, and keeps lines whole");
  app.add_flag("--tls", options.tls,
               "Workers encrypt and prove to each other that they know the job's token, as "
               "Credentials::job_tls() says");
  app.add_flag("--table", flags.table, "Prints who ended how in the end, also when nothing failed");
}

absl::StatusOr<JobRole> parse_role(const std::string& text) {
  const std::size_t equals = text.find('=');
  JobRole role;
  role.name = text.substr(0, equals);
  const auto is_good = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
  };
  if (equals == std::string::npos || role.name.empty() ||
      !std::all_of(role.name.begin(), role.name.end(), is_good)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--role: write NAME=N (letters, digits, '_', '-' and '.'), not '", text, "'"));
  }
  const std::string problem = between<int>(
      1, kMostProcesses, "the number of its processes")(std::string(text.substr(equals + 1)));
  if (!problem.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--role ", role.name, "=N: N ", problem));
  }
  role.processes = static_cast<std::size_t>(std::stoi(text.substr(equals + 1)));
  return role;
}

/// Fills in the roles and their commands; `words` are those from the first program on.
absl::Status split_roles(const Flags& flags, std::vector<std::string> words, RunOptions& options) {
  if (!words.empty() && words.front() == "--") words.erase(words.begin());
  if (flags.roles.empty()) {
    options.roles.push_back(
        {{kDefaultRole, static_cast<std::size_t>(process_count_of(flags.processes))}, {}});
  } else {
    const absl::StatusOr<JobRole> first = parse_role(flags.roles.back());
    if (!first.ok()) return first.status();
    if (flags.roles.size() > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("--role ", flags.roles.front(), " has no program: write it behind it"));
    }
    options.roles.push_back({*first, {}});
  }
  for (std::size_t i = 0; i < words.size(); ++i) {
    // A flag of this name that a program has is left to it unless its value looks like a role.
    const bool is_role = !flags.roles.empty() && words[i] == "--role" && i + 1 < words.size() &&
                         parse_role(words[i + 1]).ok();
    if (is_role) {
      options.roles.push_back({*parse_role(words[++i]), {}});
    } else {
      options.roles.back().command.push_back(words[i]);
    }
  }
  return absl::OkStatus();
}

absl::Status check_roles(const RunOptions& options) {
  std::set<std::string> names;
  for (const RunOptions::Role& role : options.roles) {
    if (role.command.empty()) {
      return absl::InvalidArgumentError(
          options.has_named_roles()
              ? absl::StrCat("--role ", role.role.name, ": write its program behind it")
              : "there is no program to run: write it behind the flags");
    }
    if (role.command.front().substr(0, 1) == "-") {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no flag ", role.command.front(),
                       options.has_named_roles() ? "; flags stand before the first --role" : ""));
    }
    if (!names.insert(role.role.name).second) {
      return absl::InvalidArgumentError(absl::StrCat("--role ", role.role.name, " is there twice"));
    }
  }
  if (options.place().local_processes() > kMostProcesses) {
    return absl::InvalidArgumentError(absl::StrCat("--role: there may be ", kMostProcesses,
                                                   " processes on a host, all together"));
  }
  return absl::OkStatus();
}

absl::Status check_nodes(const RunOptions& options) {
  if (options.node_rank >= options.nodes) {
    return absl::InvalidArgumentError(absl::StrCat("--node-rank is ", options.node_rank,
                                                   ", but --nnodes is ", options.nodes,
                                                   ": they count from 0"));
  }
  if (options.nodes == 1) return absl::OkStatus();
  if (options.master_addr.empty()) {
    return absl::InvalidArgumentError(
        "--nnodes needs --master-addr: the same on all hosts, that of rank 0");
  }
  if (options.master_port == 0) {
    return absl::InvalidArgumentError(
        "--nnodes needs --master-port: a free port of the host of rank 0, the same on all hosts");
  }
  return absl::OkStatus();
}

absl::Status check_leader(const RunOptions& options) {
  if (options.leader.empty()) return absl::OkStatus();
  for (const RunOptions::Role& role : options.roles) {
    if (role.role.name == options.leader) return absl::OkStatus();
  }
  const int world_size = options.nodes * static_cast<int>(options.place().local_processes());
  if (between<int>(0, world_size - 1, "")(std::string(options.leader)).empty()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("--leader must be a role or a rank from 0 to ",
                                                 world_size - 1, ", and '", options.leader,
                                                 "' is not"));
}

absl::Status check_run_id(const RunOptions& options) {
  const bool is_path = options.run_id.find('/') != std::string::npos || options.run_id == "." ||
                       options.run_id == "..";
  if (!is_path) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--run-id becomes the name of a folder, and '",
                                                 options.run_id, "' cannot be one"));
}

absl::Status check_tls(const RunOptions& options) {
  if (!options.tls || !own_job_token(options.nodes, options.master_port).empty()) {
    return absl::OkStatus();
  }
  const absl::StatusOr<std::string> token = read_job_token(process_environment());
  if (!token.ok()) return token.status();
  if (!token->empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--tls goes by the job's token, which others may need too: set ", kJobToken,
                   " or ", kJobTokenFile, ", the same wherever the job is started"));
}

/// On several nodes it must be the same, so that it cannot be made up: torchrun's "none" it is.
std::string default_run_id(const RunOptions& options) {
  if (options.nodes > 1) return "none";
  const std::string now = absl::FormatTime("%Y%m%d-%H%M%S", absl::Now(), absl::LocalTimeZone());
  return absl::StrCat(now, "-", ::getpid());
}

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

absl::Status complete(const Flags& flags, std::vector<std::string> words, RunOptions& options) {
  if (absl::Status split = split_roles(flags, std::move(words), options); !split.ok()) return split;
  for (const auto& check : {check_roles, check_nodes, check_leader, check_run_id, check_tls}) {
    if (absl::Status checked = check(options); !checked.ok()) return checked;
  }
  options.first_back_off = milliseconds(flags.back_off_s);
  options.grace = milliseconds(flags.grace_s);
  options.leave_grace = milliseconds(flags.leave_grace_s);
  options.prefix = flags.prefix ? RunOptions::Prefix::kRank : RunOptions::Prefix::kNone;
  options.table = flags.table ? RunOptions::Table::kAlways : RunOptions::Table::kOnFailure;
  if (options.master_addr.empty()) options.master_addr = "127.0.0.1";
  if (options.run_id.empty()) options.run_id = default_run_id(options);
  return absl::OkStatus();
}

}  // namespace

JobPlace RunOptions::place() const {
  JobPlace place;
  place.nodes = nodes;
  place.node_rank = node_rank;
  for (const Role& role : roles) place.roles.push_back(role.role);
  place.master_addr = master_addr;
  place.master_port = master_port;
  return place;
}

std::string RunOptions::warning() const {
  if (nodes == 1) return "";
  // At the host of rank 0 its own name may lead to loopback: workers there listen at all addresses.
  const bool misleads =
      is_loopback(master_addr) || (node_rank > 0 && leads_to_loopback(master_addr));
  if (!misleads) return "";
  return absl::StrCat("--master-addr ", master_addr,
                      " is this host's own loopback: unless all of the ", nodes,
                      " of --nnodes are started here, give a name or an address that leads to the "
                      "host of rank 0 from all of them");
}

bool RunOptions::has_named_roles() const {
  return roles.size() != 1 || roles.front().role.name != kDefaultRole;
}

ParsedRunOptions parse_run_options(int argc, char** argv) {
  RunOptions options;
  Flags flags;
  CLI::App app(kHelp, "sinew-run");
  app.footer(kFooter);
  app.set_version_flag("--version", "sinew-run " SINEW_VERSION_STRING);
  app.prefix_command();
  add_flags(app, flags, options);
  absl::Status status;
  try {
    app.parse(argc, argv);
    status = complete(flags, app.remaining(), options);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return {std::nullopt, app.exit(error)};
    status = absl::InvalidArgumentError(error.what());
  }
  if (status.ok()) return {std::move(options), 0};
  std::cerr << "sinew-run: " << status.message() << "\nRun it with --help for all flags.\n";
  return {std::nullopt, kUsageStatus};
}

}  // namespace sinew::internal
