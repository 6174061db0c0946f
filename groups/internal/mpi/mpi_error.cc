#include "sinew/groups/internal/mpi/mpi_error.h"

#include <array>
#include <string>

#include "absl/strings/str_cat.h"

namespace sinew::internal {
namespace {

std::string text_of(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int size = 0;
  if (MPI_Error_string(code, text.data(), &size) != MPI_SUCCESS) {
    return absl::StrCat("MPI's error ", code);
  }
  return std::string(text.data(), static_cast<std::size_t>(size));
}

absl::StatusCode status_code_of(int code) {
  int error_class = MPI_ERR_UNKNOWN;
  MPI_Error_class(code, &error_class);
  switch (error_class) {
    case MPI_ERR_TRUNCATE:
    case MPI_ERR_COUNT:
    case MPI_ERR_TYPE:
    case MPI_ERR_TAG:
    case MPI_ERR_RANK:
    case MPI_ERR_ROOT:
    case MPI_ERR_OP:
    case MPI_ERR_BUFFER:
    case MPI_ERR_ARG:
      return absl::StatusCode::kInvalidArgument;
    case MPI_ERR_NO_MEM:
      return absl::StatusCode::kResourceExhausted;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status mpi_status(int code, absl::string_view operation) {
  if (code == MPI_SUCCESS) return absl::OkStatus();
  return absl::Status(status_code_of(code), absl::StrCat(operation, ": MPI says: ", text_of(code)));
}

}  // namespace sinew::internal
