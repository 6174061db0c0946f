#include "sinew/groups/internal/mpi/mpi_operation.h"

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/groups/internal/mpi/mpi_error.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {

MpiOperation::MpiOperation(const char* operation, std::shared_ptr<MpiCommunicator> of)
    : name(operation), communicator(std::move(of)), use(communicator->runtime()) {
  const absl::Status status = communicator->check();
  if (!status.ok()) throw_error(status);
}

std::optional<MpiOutcome> MpiOperation::poll(int times) {
  for (int i = 0; i < times; ++i) {
    int done = 0;
    MPI_Status status;
    const int code = MPI_Test(&request, &done, &status);
    if (code != MPI_SUCCESS || done != 0) return outcome_of(code, status);
  }
  return std::nullopt;
}

MpiOutcome MpiOperation::outcome_of(int code, const MPI_Status& status) {
  MpiOutcome outcome{mpi_status(code, name)};
  if (!outcome.status.ok()) return outcome;
  if (expected) {
    outcome.source = status.MPI_SOURCE;
    int count = 0;
    MPI_Get_count(&status, expected->type, &count);
    if (count != expected->count) {
      outcome.status = absl::InvalidArgumentError(
          absl::StrCat(name, ": rank ", status.MPI_SOURCE, " has sent ", count, " of the ",
                       expected->count, " elements that the tensor has"));
    }
  }
  if (outcome.status.ok() && finish != nullptr) {
    try {
      finish();
    } catch (...) {
      outcome.status = to_status(std::current_exception());
    }
  }
  return outcome;
}

MpiOutcome MpiOperation::give_up() && {
  const std::shared_ptr<MpiCommunicator> of = communicator;
  if (expected) {
    // A receive that has matched goes on to its end, which is near; the others end here.
    MPI_Status status;
    int cancelled = 0;
    int code = MPI_Cancel(&request);
    if (code == MPI_SUCCESS) code = MPI_Wait(&request, &status);
    if (code == MPI_SUCCESS) code = MPI_Test_cancelled(&status, &cancelled);
    return code == MPI_SUCCESS && cancelled != 0 ? MpiOutcome{of->check()}
                                                 : outcome_of(code, status);
  }
  of->runtime().keep(std::move(*this));
  return MpiOutcome{of->check()};
}

}  // namespace sinew::internal
