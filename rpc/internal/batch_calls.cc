#include "sinew/rpc/internal/batch_calls.h"

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {

std::exception_ptr wrong_number_of_outputs(std::size_t outputs, std::size_t calls) {
  return make_error(absl::InternalError(
      absl::StrCat("the function of a Batcher returned ", outputs, " outputs for a batch of ",
                   calls, " calls: it must return one for each, in their order")));
}

std::exception_ptr invalid_future_of_outputs() {
  return make_error(absl::InternalError(
      "the function of a Batcher returned an invalid Future: it was default-constructed, moved "
      "from or taken"));
}

void fail_all(const BatchRunner::Calls& calls, const std::exception_ptr& error) {
  const WakeBatch together;
  for (const auto& call : calls) call->fail(error);
}

}  // namespace sinew::internal
