#pragma once

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <functional>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "sinew/rpc/base/internal/file_descriptor.h"
#include "sinew/rpc/planes/challenge.h"
#include "sinew/rpc/planes/same_host/meeting_socket.h"

namespace sinew::internal {

/// Another process, with a copy of this one's memory, that listens at a place for meetings.
class ListeningProcess {
 public:
  struct Does {
    /// Before it listens: false when the system does not allow it.
    std::function<bool()> before = [] { return true; };
    /// Then. It stays when this returns.
    std::function<void(const FileDescriptor& listener)> then = [](const FileDescriptor&) {};
  };

  explicit ListeningProcess(const Does& does) {
    std::array<int, 2> ready{};
    EXPECT_EQ(::pipe(ready.data()), 0);
    FileDescriptor in(ready[0]);
    FileDescriptor out(ready[1]);
    number_ = ::fork();
    if (number_ == 0) run(does, out);
    char state = 'n';
    EXPECT_EQ(::read(in.number(), &state, 1), 1);
    listens_ = state == 'y';
  }
  ~ListeningProcess() { kill(); }
  ListeningProcess(const ListeningProcess&) = delete;
  ListeningProcess& operator=(const ListeningProcess&) = delete;

  const std::string& place() const { return place_; }
  pid_t number() const { return number_; }
  bool listens() const { return listens_; }
  /// It is gone, and its number free, when this returns.
  void kill() {
    if (number_ <= 0) return;
    ::kill(number_, SIGKILL);
    EXPECT_EQ(::waitpid(number_, nullptr, 0), number_);
    number_ = 0;
  }

 private:
  [[noreturn]] void run(const Does& does, const FileDescriptor& ready) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    absl::StatusOr<FileDescriptor> listener = absl::UnavailableError("not allowed");
    if (does.before()) listener = listen_at(place_);
    const char state = listener.ok() ? 'y' : 'n';
    if (::write(ready.number(), &state, 1) != 1) ::_exit(1);
    if (listener.ok()) does.then(*listener);
    for (;;) ::pause();
  }

  const std::string place_ = new_challenge();
  pid_t number_ = 0;
  bool listens_ = false;
};

}  // namespace sinew::internal
