#include "sinew/rpc/base/worker_name.h"

#include <cstddef>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"

namespace sinew {
namespace {

constexpr std::size_t kMostNameBytes = 128;

std::string quoted(std::string_view text) {
  return absl::StrCat("'", internal::printable(std::string(text), 256), "'");
}

}  // namespace

namespace internal {

bool is_name_character(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == ':' ||
         c == '-';
}

}  // namespace internal

absl::Status validate_worker_name(std::string_view name) {
  if (name.empty()) {
    return absl::InvalidArgumentError(
        "the worker name is empty; give each worker a name of its own");
  }
  if (name.size() > kMostNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the worker name ", quoted(name.substr(0, 32)),
                                                   "... has ", name.size(),
                                                   " characters; use at most ", kMostNameBytes));
  }
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (internal::is_name_character(name[i])) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the worker name ", quoted(name), " has the character ", quoted(name.substr(i, 1)),
        " at position ", i, "; use letters, digits and '_', '.', ':', '-'"));
  }
  return absl::OkStatus();
}

}  // namespace sinew
