#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace sinew::internal {

/// Where a function lies, for another process of the same program, which may have it at another
/// address.
struct CodeAddress {
  /// The shared library; empty: the program itself.
  std::string module;
  /// From where the module was loaded.
  std::uint64_t offset = 0;
  /// The module's; empty if it was linked without one.
  std::string build_id;
};

/// kInvalidArgument: `address` is no code of the program or of one of its libraries.
absl::StatusOr<CodeAddress> locate_code(std::uintptr_t address);

/// kFailedPrecondition: the module is not loaded here, or is another build of it.
absl::StatusOr<std::uintptr_t> resolve_code(const CodeAddress& code);

}  // namespace sinew::internal
