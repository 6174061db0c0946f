#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <random>
#include <stdexcept>
#include <system_error>

namespace sinew::bench {

/// A loopback port that is nobody else's while this process runs, of all who take theirs so:
/// launch/internal/port_reservation.h, for the peers, which do not have that.
inline std::uint16_t free_loopback_port() {
  std::random_device random;
  for (int tries = 0; tries < 10000; ++tries) {
    const auto port = static_cast<std::uint16_t>(20000 + random() % 12000);
    sockaddr_un name{AF_UNIX, {}};
    char* const text = name.sun_path + 1;
    const int length = std::snprintf(text, sizeof name.sun_path - 1, "sinew-port-%d", port);
    const auto size = static_cast<socklen_t>(text - reinterpret_cast<char*>(&name) + length);
    const sockaddr_in address{AF_INET, htons(port), {htonl(INADDR_LOOPBACK)}, {}};
    const int reserved = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool is_free =
        bind(reserved, reinterpret_cast<const sockaddr*>(&name), size) == 0 &&
        bind(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    close(probe);
    if (is_free) return port;  // `reserved` stays open
    close(reserved);
  }
  throw std::runtime_error("cannot find a free port");
}

/// A second process of a benchmark, forked from this one, that serves on a loopback port of its own
/// choice. It is killed when this object goes, and by the kernel when this process dies first.
///
/// Make it before anything that starts threads (a channel, a server): a fork copies only its
/// caller.
class ServerProcess {
 public:
  using ReportPort = std::function<void(std::uint16_t port)>;

  /// Runs `serve` in the new process and waits until it has reported its port. `serve` must not
  /// return. Throws std::runtime_error if the process ended before it reported.
  explicit ServerProcess(const std::function<void(const ReportPort&)>& serve) {
    int ends[2];
    if (pipe(ends) != 0) {
      throw std::system_error(errno, std::generic_category(), "cannot make a pipe");
    }
    const pid_t parent = getpid();
    process_ = fork();
    if (process_ < 0) {
      throw std::system_error(errno, std::generic_category(), "cannot fork the server process");
    }
    if (process_ == 0) {
      close(ends[0]);
      run_child(parent, ends[1], serve);
    }
    close(ends[1]);
    const bool reported = read(ends[0], &port_, sizeof port_) == sizeof port_;
    close(ends[0]);
    if (!reported) {
      stop();
      throw std::runtime_error("the server process ended before it reported its port");
    }
  }

  ~ServerProcess() { stop(); }

  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  std::uint16_t port() const { return port_; }
  pid_t process() const { return process_; }

 private:
  [[noreturn]] static void run_child(pid_t parent, int port_pipe,
                                     const std::function<void(const ReportPort&)>& serve) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
      _exit(1);  // the parent died before the line above could take effect
    }
    try {
      serve([port_pipe](std::uint16_t port) {
        if (write(port_pipe, &port, sizeof port) != sizeof port) {
          throw std::system_error(errno, std::generic_category(), "cannot report the port");
        }
        close(port_pipe);
      });
      std::fprintf(stderr, "the server process ended on its own\n");
    } catch (const std::exception& error) {
      std::fprintf(stderr, "the server process failed: %s\n", error.what());
    }
    _exit(1);
  }

  void stop() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }

  pid_t process_ = -1;
  std::uint16_t port_ = 0;
};

}  // namespace sinew::bench
