#include "sinew/launch/process_end.h"

#include <signal.h>
#include <string.h>

#include <cerrno>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/internal/system_call.h"

namespace sinew {

int ProcessEnd::shell_status() const {
  switch (kind) {
    case Kind::kExited:
      return number;
    case Kind::kSignalled:
      return 128 + number;
    case Kind::kNotStarted:
      return number == ENOENT ? 127 : 126;
    case Kind::kUnkillable:
      return 128 + SIGKILL;
    case Kind::kUnknown:
      break;
  }
  return 1;
}

std::string ProcessEnd::text() const {
  switch (kind) {
    case Kind::kExited:
      return absl::StrCat("exited with code ", number);
    case Kind::kSignalled:
      return absl::StrCat("was ended by ", signal_name(number), " (", ::strsignal(number), ")");
    case Kind::kNotStarted:
      return absl::StrCat("could not be started: ",
                          call == nullptr
                              ? std::error_code(number, std::generic_category()).message()
                              : internal::call_failure(call, number));
    case Kind::kUnkillable:
      return "did not end although it was killed";
    case Kind::kUnknown:
      break;
  }
  return "ended, and its exit status was taken by other code";
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? absl::StrCat("signal ", signal) : absl::StrCat("SIG", name);
}

}  // namespace sinew
