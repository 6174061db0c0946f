// probe [STEP...]: how NCCL and CUDA behave on this machine where the plane depends on it, each
// step in two processes that share device 0. Without names, all steps. Ends with 1 if a step failed
// or did not end.

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "steps.h"

namespace {

using probe::Step;

const Step* find(const std::string& name) {
  for (const Step& step : probe::steps()) {
    if (step.name == name) return &step;
  }
  return nullptr;
}

pid_t start(const Step& step, int rank, int socket) {
  const pid_t child = fork();
  if (child != 0) return child;
  fcntl(socket, F_SETFD, 0);
  // Two ranks on one device are refused unless they seem to be on two hosts.
  setenv("NCCL_HOSTID", rank == 0 ? "sinew-probe-0" : "sinew-probe-1", 1);
  if (step.environment != nullptr) putenv(strdup(step.environment));
  const std::string rank_text = std::to_string(rank);
  const std::string socket_text = std::to_string(socket);
  execl("/proc/self/exe", "probe", "--rank", rank_text.c_str(), socket_text.c_str(), step.name,
        nullptr);
  std::_Exit(127);
}

// Whether both ranks ended as they should.
bool run(const Step& step) {
  std::printf("--- %s: %s\n", step.name, step.question);
  std::fflush(stdout);
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) return false;
  const pid_t children[2] = {start(step, 0, sockets[0]), start(step, 1, sockets[1])};
  close(sockets[0]);
  close(sockets[1]);
  bool good = true;
  const auto begin = probe::Clock::now();
  for (int rank = 0; rank < 2; ++rank) {
    int status = 0;
    const double ended = probe::wait_until(step.limit_s - probe::seconds_since(begin), [&] {
      return waitpid(children[rank], &status, WNOHANG) == children[rank];
    });
    if (ended < 0) {
      std::printf("%s %d: FAIL  has not ended in %g s\n", step.name, rank, step.limit_s);
      kill(children[rank], SIGKILL);
      waitpid(children[rank], &status, 0);
      good = false;
    } else if (!(WIFEXITED(status) && WEXITSTATUS(status) == 0) &&
               !(rank == 1 && step.ends_apart)) {
      std::printf("%s %d: FAIL  ended with %s %d\n", step.name, rank,
                  WIFSIGNALED(status) ? "signal" : "status",
                  WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
      good = false;
    }
  }
  std::fflush(stdout);
  return good;
}

int run_rank(const std::string& rank_text, const std::string& socket, const std::string& name) {
  const int rank = std::stoi(rank_text);
  const Step* step = find(name);
  if (step == nullptr) return 2;
  probe::set_speaker(name, rank);
  probe::Pair pair(rank, std::stoi(socket));
  step->run(pair);
  // What one rank has sent may still be in its process, also when its stream is done.
  if (!step->ends_apart) pair.meet();
  // NCCL's and CUDA's own ends are no part of any step, and wait for what a step left behind.
  std::fflush(stdout);
  std::_Exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 5 && std::string(argv[1]) == "--rank") return run_rank(argv[2], argv[3], argv[4]);
  int failed = 0;
  if (argc == 1) {
    for (const Step& step : probe::steps()) failed += run(step) ? 0 : 1;
  }
  for (int i = 1; i < argc; ++i) {
    const Step* step = find(argv[i]);
    if (step == nullptr) {
      std::fprintf(stderr, "probe: there is no step '%s'; the steps are:", argv[i]);
      for (const Step& known : probe::steps()) std::fprintf(stderr, " %s", known.name);
      std::fprintf(stderr, "\n");
      return 2;
    }
    failed += run(*step) ? 0 : 1;
  }
  return failed == 0 ? 0 : 1;
}
