#include "sinew/rpc/base/ids.h"

#include <random>

namespace sinew {

std::uint64_t random_secret() {
  // std::random_device reads the kernel's generator; a seeded engine would make ids predictable.
  thread_local std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32) | device();
}

std::ostream& operator<<(std::ostream& out, const WorkerInfo& worker) {
  return out << "WorkerInfo(name=" << worker.name << ", rank=" << worker.rank << ")";
}

}  // namespace sinew
