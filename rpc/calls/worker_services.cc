#include "sinew/rpc/calls/worker_services.h"

#include "absl/strings/str_cat.h"

namespace sinew::internal {

absl::Status WorkerServices::ended(std::string_view consequence) const {
  absl::Status evicted = this->evicted();
  if (!evicted.ok()) return evicted;
  return absl::FailedPreconditionError(
      absl::StrCat("worker '", self().name,
                   "' was shut down: ", absl::string_view(consequence.data(), consequence.size())));
}

}  // namespace sinew::internal
