#include "sinew/testing/internal/processors.h"

#include <sched.h>

namespace sinew::internal {

void visit_processors() {
  // Where that is refused, or there are more processors than fit: it stays where it is.
  cpu_set_t all;
  if (::sched_getaffinity(0, sizeof(all), &all) != 0) return;
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (!CPU_ISSET(processor, &all)) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    // It is there when this returns. One that is switched off meanwhile is passed over.
    ::sched_setaffinity(0, sizeof(one), &one);
  }
  ::sched_setaffinity(0, sizeof(all), &all);
}

}  // namespace sinew::internal
