#pragma once

#include <string>

namespace sinew {

/// How a process ended.
struct ProcessEnd {
  enum class Kind {
    /// `number` is its exit code.
    kExited,
    /// `number` is the signal that ended it.
    kSignalled,
    /// It could not be started; `number` is an errno, of the system call `call` if that is known.
    kNotStarted,
    /// It is gone, and other code in the process that started it has taken its exit status: code
    /// that ignores SIGCHLD, or waits for children that are not its own.
    kUnknown,
    /// It does not end although it was killed: it hangs in the kernel. It is not waited for.
    kUnkillable,
  };

  static ProcessEnd exited(int code) { return {Kind::kExited, code}; }
  static ProcessEnd signalled(int signal) { return {Kind::kSignalled, signal}; }
  static ProcessEnd not_started(int error, const char* call = nullptr) {
    return {Kind::kNotStarted, error, call};
  }

  /// It exited with 0.
  bool is_well() const { return kind == Kind::kExited && number == 0; }
  /// What a shell reports: the exit code; 128 and the signal's number; 127 for a program that is
  /// not there and 126 for one that cannot be run; 1 otherwise.
  int shell_status() const;
  /// For people: "exited with code 3", "was ended by SIGSEGV (Segmentation fault)", ...
  std::string text() const;

  Kind kind = Kind::kExited;
  int number = 0;
  /// A literal, or null.
  const char* call = nullptr;
};

inline bool operator==(const ProcessEnd& a, const ProcessEnd& b) {
  return a.kind == b.kind && a.number == b.number;
}

/// "SIGKILL"; "signal 64" for one without a name.
std::string signal_name(int signal);

}  // namespace sinew
