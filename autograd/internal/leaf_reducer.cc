#include "sinew/autograd/internal/leaf_reducer.h"

#include "sinew/autograd/internal/context_state.h"
#include "sinew/rpc/base/internal/thread_context.h"

namespace sinew::internal {

bool reduce_in_current_context(const std::shared_ptr<LeafReducer>& reducer) {
  const auto& current = ThreadContext::current();
  if (current == nullptr || current->ambient() == nullptr) return false;
  return std::static_pointer_cast<ContextState>(current->ambient())->add_reducer(reducer);
}

}  // namespace sinew::internal
