#include "sinew/groups/internal/c10d_access.h"

#include <numeric>
#include <vector>

#include "sinew/groups/internal/c10d_adapter.h"
#include "sinew/groups/internal/group_engine.h"

namespace sinew::internal {

c10::intrusive_ptr<c10d::ProcessGroup> c10d_group_of(const ProcessGroup& group,
                                                     c10::DeviceType device, std::int64_t module) {
  ProcessGroupAccess::engine(group)->backend_for(device);
  return make_c10d_adapter(group, device, module);
}

c10::DeviceType any_device_of(const ProcessGroup& group) {
  return ProcessGroupAccess::engine(group)->any_device();
}

ProcessGroup another_group(const ProcessGroup& group) {
  std::vector<int> ranks(static_cast<std::size_t>(group.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return group.new_group(ranks, ProcessGroupAccess::engine(group)->setup().options);
}

}  // namespace sinew::internal
