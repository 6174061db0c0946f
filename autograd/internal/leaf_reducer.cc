#include "sinew/autograd/internal/leaf_reducer.h"

#include "sinew/autograd/internal/context_thread.h"

namespace sinew::internal {

bool reduce_in_current_context(const std::shared_ptr<LeafReducer>& reducer) {
  const auto work = current_work();
  return work != nullptr && work->context()->add_reducer(reducer);
}

}  // namespace sinew::internal
