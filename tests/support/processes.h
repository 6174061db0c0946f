#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sinew::testing {

/// A process that the test started, with a pipe for commands and one for answers: it reads lines
/// from its standard input and writes one line for each to its standard output. Its errors go to
/// the test's own. Killed, by its pid, when this goes.
///
/// For one thread at a time. Failures throw std::runtime_error.
class ChildProcess {
 public:
  /// `command[0]` is the path of the program. `environment` ("NAME=value") is added to that of the
  /// test.
  explicit ChildProcess(const std::vector<std::string>& command,
                        const std::vector<std::string>& environment = {});
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }

  void send(const std::string& line);
  /// The next line. Throws when the process ends first, or after `timeout`.
  std::string receive(std::chrono::milliseconds timeout = std::chrono::minutes(3));
  std::string ask(const std::string& line,
                  std::chrono::milliseconds timeout = std::chrono::minutes(3)) {
    send(line);
    return receive(timeout);
  }

  /// SIGKILL, SIGSTOP, SIGCONT, ... Returns once a stopped process has stopped and a killed one is
  /// gone.
  void signal(int number);
  /// Closes the pipe for commands and waits for the end. The exit code, or 128 and the signal's
  /// number; nullopt after `timeout`.
  std::optional<int> finish(std::chrono::milliseconds timeout = std::chrono::seconds(60));

 private:
  std::optional<int> wait_for_end(std::chrono::milliseconds timeout);

  pid_t pid_ = -1;
  int commands_ = -1;
  int answers_ = -1;
  std::string buffer_;
  std::optional<int> status_;
};

/// What a process has written, and how it has ended: see ChildProcess::finish(); -1: not at all.
struct EndedProcess {
  int code = -1;
  std::string output;
};
/// Of processes that run at the same time and take no commands. Each has `limit` for a line.
std::vector<EndedProcess> run_to_the_end(
    const std::vector<std::unique_ptr<ChildProcess>>& processes,
    std::chrono::milliseconds limit = std::chrono::minutes(8));

/// Runs a program to its end and returns what it wrote to its standard output. Throws unless it
/// exits with 0.
std::string run_program(const std::vector<std::string>& command);

/// Memory of the process that is not swapped out. Throws when there is no such process.
std::size_t resident_bytes(pid_t pid);

/// Where temporary files may lie: in memory (/dev/shm) where there is room for so many bytes, so
/// that no disk decides how long it takes to write them.
std::string fast_folder(std::size_t bytes);

/// The names of what a folder has, sorted.
std::vector<std::string> files_in(const std::string& folder);

/// A port on which nobody listens, and which no other test and no launcher gets while this process
/// runs. Throws when there is none.
int free_port();

}  // namespace sinew::testing
