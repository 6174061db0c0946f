#include "sinew/tests/support/processes.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/launch/internal/port_reservation.h"

extern char** environ;

namespace sinew::testing {
namespace {

using SteadyClock = std::chrono::steady_clock;

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& command,
                           const std::vector<std::string>& environment) {
  int in[2];
  int out[2];
  // Closed on exec: a sibling that inherited an end would keep the pipe open when this child dies.
  if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0)
    throw std::system_error(errno, std::generic_category(), "pipe2");
  std::vector<std::string> arguments = command;
  std::vector<std::string> variables;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view variable(*at);
    const std::string_view name = variable.substr(0, variable.find('=') + 1);
    bool replaced = false;
    for (const std::string& added : environment) {
      replaced = replaced || std::string_view(added).substr(0, name.size()) == name;
    }
    if (!replaced) variables.emplace_back(variable);
  }
  variables.insert(variables.end(), environment.begin(), environment.end());
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  // posix_spawn rather than fork: the test has threads, whose locks a forked copy could never get.
  const int error = ::posix_spawn(&pid_, arguments.at(0).c_str(), &actions, nullptr,
                                  pointers(arguments).data(), pointers(variables).data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(in[0]);
  ::close(out[1]);
  commands_ = in[1];
  answers_ = out[0];
  if (error != 0) {
    ::close(commands_);
    ::close(answers_);
    throw std::runtime_error(absl::StrCat("cannot start ", command[0], ": ", std::strerror(error)));
  }
}

ChildProcess::~ChildProcess() {
  ::close(answers_);
  if (commands_ >= 0) ::close(commands_);
  if (status_.has_value()) return;
  ::kill(pid_, SIGKILL);
  int status = 0;
  ::waitpid(pid_, &status, 0);
}

void ChildProcess::send(const std::string& line) {
  const std::string text = absl::StrCat(line, "\n");
  if (commands_ < 0) throw std::runtime_error("the pipe for commands is closed");
  // A child that died must be an error of the test, not its end.
  ::signal(SIGPIPE, SIG_IGN);
  if (::write(commands_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    throw std::system_error(errno, std::generic_category(),
                            absl::StrCat("cannot send '", line, "'"));
  }
}

std::string ChildProcess::receive(std::chrono::milliseconds timeout) {
  const auto deadline = SteadyClock::now() + timeout;
  while (true) {
    const std::size_t end = buffer_.find('\n');
    if (end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - SteadyClock::now());
    if (left.count() <= 0) {
      throw std::runtime_error(
          absl::StrCat("process ", pid_, " did not answer within ", timeout.count(), " ms"));
    }
    pollfd waiting{answers_, POLLIN, 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(left.count()));
    if (ready < 0 && errno != EINTR)
      throw std::system_error(errno, std::generic_category(), "poll");
    if (ready <= 0) continue;
    char bytes[4096];
    const ssize_t size = ::read(answers_, bytes, sizeof bytes);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0)
      throw std::runtime_error(absl::StrCat("process ", pid_, " ended without an answer"));
    buffer_.append(bytes, static_cast<std::size_t>(size));
  }
}

void ChildProcess::signal(int number) {
  if (status_.has_value()) throw std::runtime_error(absl::StrCat("process ", pid_, " has ended"));
  if (::kill(pid_, number) != 0) throw std::system_error(errno, std::generic_category(), "kill");
  int status = 0;
  if (number == SIGSTOP) {
    if (::waitpid(pid_, &status, WUNTRACED) != pid_)
      throw std::system_error(errno, std::generic_category(), "waitpid");
    if (!WIFSTOPPED(status))
      throw std::runtime_error(absl::StrCat("process ", pid_, " did not stop"));
  } else if (number == SIGKILL) {
    wait_for_end(std::chrono::seconds(60));
  }
}

std::optional<int> ChildProcess::wait_for_end(std::chrono::milliseconds timeout) {
  const auto deadline = SteadyClock::now() + timeout;
  while (!status_.has_value()) {
    int status = 0;
    const pid_t ended = ::waitpid(pid_, &status, WNOHANG);
    if (ended < 0) throw std::system_error(errno, std::generic_category(), "waitpid");
    if (ended == pid_ && WIFEXITED(status)) status_ = WEXITSTATUS(status);
    if (ended == pid_ && WIFSIGNALED(status)) status_ = 128 + WTERMSIG(status);
    if (!status_.has_value()) {
      if (SteadyClock::now() > deadline) return std::nullopt;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  return status_;
}

std::optional<int> ChildProcess::finish(std::chrono::milliseconds timeout) {
  if (commands_ >= 0) ::close(std::exchange(commands_, -1));
  return wait_for_end(timeout);
}

namespace {

EndedProcess read_to_the_end(ChildProcess& process, std::chrono::milliseconds limit) {
  EndedProcess ended;
  try {
    for (;;) absl::StrAppend(&ended.output, process.receive(limit), "\n");
  } catch (const std::runtime_error&) {
    // It has closed its output.
  }
  ended.code = process.finish().value_or(-1);
  return ended;
}

}  // namespace

std::vector<EndedProcess> run_to_the_end(
    const std::vector<std::unique_ptr<ChildProcess>>& processes, std::chrono::milliseconds limit) {
  std::vector<EndedProcess> ended(processes.size());
  std::vector<std::thread> readers;
  for (std::size_t i = 0; i < processes.size(); ++i) {
    readers.emplace_back([&, i] { ended[i] = read_to_the_end(*processes[i], limit); });
  }
  for (std::thread& reader : readers) reader.join();
  return ended;
}

std::string run_program(const std::vector<std::string>& command) {
  ChildProcess program(command);
  EndedProcess ended = read_to_the_end(program, std::chrono::minutes(3));
  if (ended.code != 0) {
    throw std::runtime_error(absl::StrCat(command[0], " ended with ", ended.code));
  }
  return std::move(ended.output);
}

std::size_t resident_bytes(pid_t pid) {
  std::ifstream statistics(absl::StrCat("/proc/", pid, "/statm"));
  std::size_t all_pages = 0;
  std::size_t resident_pages = 0;
  if (!(statistics >> all_pages >> resident_pages)) {
    throw std::runtime_error(absl::StrCat("process ", pid, " tells nothing of its memory"));
  }
  return resident_pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

std::string fast_folder(std::size_t bytes) {
  constexpr char kInMemory[] = "/dev/shm";
  std::error_code error;
  const auto space = std::filesystem::space(kInMemory, error);
  const bool has_room = !error && space.available >= bytes && ::access(kInMemory, W_OK) == 0;
  return has_room ? kInMemory : std::filesystem::temp_directory_path().string();
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    found.push_back(entry.path().filename().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

int free_port() {
  static std::mutex mutex;
  // The ports stay taken until this process ends.
  static auto& kept = *new std::vector<internal::PortReservation>;
  absl::StatusOr<internal::PortReservation> port = internal::PortReservation::make();
  if (!port.ok()) throw std::runtime_error(std::string(port.status().message()));
  const std::lock_guard<std::mutex> lock(mutex);
  kept.push_back(*std::move(port));
  return kept.back().port();
}

}  // namespace sinew::testing
