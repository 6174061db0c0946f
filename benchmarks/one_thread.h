#pragma once

#include <dlfcn.h>

#include "ATen/Parallel.h"

namespace sinew::bench {

/// Lets LibTorch and the BLAS beneath it compute on one thread in this process, as the peers do. A
/// BLAS reads its environment when it is loaded, which is before main(); OpenBLAS can be told
/// later.
inline void compute_on_one_thread() {
  at::set_num_threads(1);
  using SetThreads = void (*)(int);
  const auto set_threads =
      reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads"));
  if (set_threads != nullptr) set_threads(1);
}

}  // namespace sinew::bench
