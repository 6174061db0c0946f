#include "sinew/rpc/base/internal/system_call.h"

#include <cerrno>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace sinew::internal {

std::string call_failure(absl::string_view call, int error) {
  std::string text =
      absl::StrCat(call, ": ", std::error_code(error, std::generic_category()).message());
  if (error == EPERM) {
    absl::StrAppend(&text, "; a seccomp profile, or another rule of this host, denies it");
  } else if (error == ENOSYS) {
    absl::StrAppend(&text, "; this kernel lacks it, or a seccomp profile denies it");
  }
  return text;
}

}  // namespace sinew::internal
