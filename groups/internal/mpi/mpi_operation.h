#pragma once

#include <mpi.h>

#include <memory>
#include <optional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "sinew/groups/internal/mpi/mpi_communicator.h"
#include "sinew/groups/internal/mpi/mpi_runtime.h"

namespace sinew::internal {

/// What an operation came to.
struct MpiOutcome {
  absl::Status status;
  /// Of a receive: the rank that has sent it.
  int source = -1;
};

/// Of a receive: how much is to come.
struct MpiExpected {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  int count = 0;
};

/// An operation of MPI that has been started, with all that MPI reads and writes until it is done.
/// Its holder asks for its end, or hands it over to the runtime (MpiRuntime::adopt). It must not be
/// destroyed before its end. Not thread-safe.
struct MpiOperation {
  /// Throws RpcError if the communicator is of no use any more.
  MpiOperation(const char* operation, std::shared_ptr<MpiCommunicator> of);

  const char* name;
  std::shared_ptr<MpiCommunicator> communicator;
  MpiRuntime::Use use;
  MPI_Request request = MPI_REQUEST_NULL;
  std::vector<at::Tensor> tensors;
  /// Counts and offsets of those collectives that have them for each rank.
  std::vector<int> places;
  std::optional<MpiExpected> expected;
  /// What remains to be done with the result; may be null.
  absl::AnyInvocable<void()> finish;

  /// Asks MPI up to `times` times; nothing if it still runs.
  std::optional<MpiOutcome> poll(int times);

  /// Ends it before its time, after its communicator has failed. A receive is taken back, unless it
  /// is done at this moment. Nothing else can be: the runtime keeps it for good.
  MpiOutcome give_up() &&;

 private:
  MpiOutcome outcome_of(int code, const MPI_Status& status);
};

}  // namespace sinew::internal
