// What the kernel itself can do between two processes: one copy out of the other one's memory
// (cross-memory attach) into pages that are there already, and a plain TCP stream over loopback.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <system_error>

#include "sinew/benchmarks/measure.h"
#include "sinew/benchmarks/server_process.h"
#include "sinew/benchmarks/tensor_transfers.h"

namespace sinew::bench {
namespace {

[[noreturn]] void throw_errno(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

/// What the client asks of the server: a line of this before each transfer.
enum class Action : std::uint64_t { kWarm, kPush, kPull };
struct Request {
  Action action;
  std::uint64_t bytes;
};

/// Mapped before the fork, so it has the same address in both processes; each writes to it first,
/// and then has pages of its own there.
char* map_buffer() {
  const std::size_t bytes = static_cast<std::size_t>(kTensorBytes.back());
  void* const buffer =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (buffer == MAP_FAILED) throw_errno("cannot map a buffer");
  return static_cast<char*>(buffer);
}

void write_all(int socket, const char* data, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t written = write(socket, data, bytes);
    if (written <= 0) throw_errno("cannot write to the stream");
    data += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

/// False when the stream has ended.
bool read_all(int socket, char* data, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t got = read(socket, data, bytes);
    if (got < 0) throw_errno("cannot read from the stream");
    if (got == 0) return false;
    data += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

void read_answer(int socket, char* data, std::size_t bytes) {
  if (!read_all(socket, data, bytes)) throw std::runtime_error("the server closed the stream");
}

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

void send_at_once(int socket) {
  const int yes = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

void serve(const ServerProcess::ReportPort& report_port, char* buffer) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(listener, 1) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw_errno("cannot listen on loopback");
  }
  report_port(ntohs(address.sin_port));
  const int client = accept(listener, nullptr, nullptr);
  if (client < 0) throw_errno("cannot accept the client");
  send_at_once(client);
  const char done = 1;
  Request request{};
  while (read_all(client, reinterpret_cast<char*>(&request), sizeof request)) {
    switch (request.action) {
      case Action::kWarm:
        std::memset(buffer, 1, request.bytes);
        write_all(client, &done, 1);
        break;
      case Action::kPush:
        if (!read_all(client, buffer, request.bytes)) return;
        write_all(client, &done, 1);
        break;
      case Action::kPull:
        write_all(client, buffer, request.bytes);
        break;
    }
  }
}

void copy_from(pid_t process, char* buffer, std::size_t bytes) {
  std::size_t copied = 0;
  while (copied < bytes) {
    // One call copies 2 GiB at most.
    const iovec here{buffer + copied, bytes - copied};
    const iovec there{buffer + copied, bytes - copied};
    const ssize_t got = process_vm_readv(process, &here, 1, &there, 1, 0);
    if (got <= 0) throw_errno("cannot read the other process's memory");
    copied += static_cast<std::size_t>(got);
  }
}

void run(const Options& options) {
  char* const buffer = map_buffer();
  const ServerProcess server([buffer](const auto& report) { serve(report, buffer); });
  const int stream = socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in address = loopback(server.port());
  if (connect(stream, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    throw_errno("cannot connect to the server");
  }
  send_at_once(stream);

  std::size_t size = 0;
  char done = 0;
  const auto ask = [&](Action action) {
    const Request request{action, size};
    write_all(stream, reinterpret_cast<const char*>(&request), sizeof request);
  };
  const auto warm = [&](std::int64_t bytes) {
    size = static_cast<std::size_t>(bytes);
    std::memset(buffer, 2, size);
    ask(Action::kWarm);
    read_answer(stream, &done, 1);
  };
  // Whoever receives makes the copy, so both directions are the same work. No word passes between
  // the processes: no system that has to tell its peer can be as fast.
  const auto copy = [&] { copy_from(server.process(), buffer, size); };
  measure_plane(options, kSameHost, warm, copy, copy);
  measure_plane(
      options, kNetwork, warm,
      [&] {
        ask(Action::kPush);
        write_all(stream, buffer, size);
        read_answer(stream, &done, 1);
      },
      [&] {
        ask(Action::kPull);
        read_answer(stream, buffer, size);
      });
  close(stream);
}

}  // namespace
}  // namespace sinew::bench

int main(int argc, char** argv) {
  const auto options = sinew::bench::parse_options(argc, argv, sinew::bench::tensor_figures());
  try {
    sinew::bench::run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
  return 0;
}
