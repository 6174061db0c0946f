#include "sinew/rpc/base/warm_heap.h"

#include <cstddef>
#include <cstdlib>

namespace sinew::internal {

void keep_heap_warm() {
  constexpr std::size_t kLargestKeptBytes = std::size_t{16} << 20;
  // Volatile, or the compiler would leave out both calls.
  void* volatile const block = std::malloc(kLargestKeptBytes);
  std::free(block);
}

}  // namespace sinew::internal
