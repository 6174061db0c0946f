#pragma once

#include <cstddef>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "sinew/rpc/base/threads/executor.h"

namespace sinew::internal {

/// Copies large blocks with several threads at once: one core alone gets a half or less of what the
/// memory can do. The caller's thread takes piece after piece, and so does each helper once it is
/// awake; one that comes late finds nothing left. Thread-safe; the helpers start with the first
/// large copy.
class CopyTeam {
 public:
  /// Copies the bytes from `offset` to `offset + size_bytes`. On any of the threads, on several at
  /// once.
  using CopyPiece = absl::FunctionRef<absl::Status(std::size_t offset, std::size_t size_bytes)>;

  /// 0 helpers: every copy is the caller's alone.
  explicit CopyTeam(std::size_t helpers);
  /// One for the cores of this machine.
  static std::shared_ptr<CopyTeam> for_this_machine();

  /// Calls `copy_piece` for all of [0, size_bytes), and returns when no call is running. Not OK:
  /// what one of the calls returned; the rest was not copied.
  absl::Status copy(std::size_t size_bytes, CopyPiece copy_piece);

 private:
  struct Job;

  const std::size_t helpers_;
  Executor executor_;
};

}  // namespace sinew::internal
