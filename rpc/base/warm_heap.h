#pragma once

namespace sinew::internal {

/// Makes malloc keep the memory of blocks of up to 16 MiB, and 32 MiB of it in each of its arenas,
/// instead of giving it back to the system and getting it anew, empty, for the next one: buffers
/// that gRPC reads sockets into come and go all the time. As glibc learns it by itself from the
/// first such block that is freed (mallopt(3), M_MMAP_THRESHOLD); who has set the thresholds by
/// mallopt or the environment keeps his own, and other allocators theirs. Idempotent, thread-safe.
void keep_heap_warm();

}  // namespace sinew::internal
