#pragma once

#include <malloc.h>

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace sinew::testing {

/// False where a sanitizer has replaced glibc's malloc.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kMallocIsGlibcs = false;
#else
inline constexpr bool kMallocIsGlibcs = true;
#endif

/// Whether malloc asks the system for a block of this size alone, to give it back with free().
inline bool comes_from_the_system(std::size_t size_bytes) {
  const std::size_t before = mallinfo2().hblks;
  const std::unique_ptr<void, void (*)(void*)> block(std::malloc(size_bytes), &std::free);
  return mallinfo2().hblks > before;
}

}  // namespace sinew::testing
