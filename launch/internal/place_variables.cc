#include "sinew/launch/internal/place_variables.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/environment.h"
#include "sinew/rpc/base/job_token.h"

namespace sinew::internal {
namespace {

constexpr char kThreads[] = "OMP_NUM_THREADS";

struct RolePlace {
  const JobRole* role;
  std::size_t index;
};

RolePlace role_place(const JobPlace& place, std::size_t local_rank) {
  std::size_t index = local_rank;
  for (const JobRole& role : place.roles) {
    if (index < role.processes) return {&role, index};
    index -= role.processes;
  }
  return {&place.roles.back(), index};
}

}  // namespace

std::size_t JobPlace::local_processes() const {
  std::size_t sum = 0;
  for (const JobRole& each : roles) sum += each.processes;
  return sum;
}

std::size_t JobPlace::rank(std::size_t local_rank) const {
  return static_cast<std::size_t>(node_rank) * local_processes() + local_rank;
}

const JobRole& JobPlace::role(std::size_t local_rank) const {
  return *role_place(*this, local_rank).role;
}

Variables place_variables(const JobPlace& place, std::size_t local_rank) {
  const auto [role, index] = role_place(place, local_rank);
  const auto nodes = static_cast<std::size_t>(place.nodes);
  const auto node_rank = static_cast<std::size_t>(place.node_rank);
  Variables variables = {
      {"RANK", absl::StrCat(place.rank(local_rank))},
      {"LOCAL_RANK", absl::StrCat(local_rank)},
      {"WORLD_SIZE", absl::StrCat(nodes * place.local_processes())},
      {"LOCAL_WORLD_SIZE", absl::StrCat(place.local_processes())},
      {"GROUP_RANK", absl::StrCat(node_rank)},
      {"GROUP_WORLD_SIZE", absl::StrCat(nodes)},
      {"ROLE_NAME", role->name},
      {"ROLE_RANK", absl::StrCat(node_rank * role->processes + index)},
      {"ROLE_WORLD_SIZE", absl::StrCat(nodes * role->processes)},
      {"MASTER_ADDR", place.master_addr},
      {"MASTER_PORT", absl::StrCat(place.master_port)},
      // Of a torchrun that may have started this process: it listens at its port itself, while here
      // rank 0 does.
      {"TORCHELASTIC_USE_AGENT_STORE", "False"},
  };
  // Each of several would start a thread for each core.
  if (place.local_processes() > 1 && std::getenv(kThreads) == nullptr) variables[kThreads] = "1";
  return variables;
}

std::string own_job_token(int nodes, int master_port) {
  const bool is_alone = nodes == 1 && master_port == 0;
  return is_alone && !says_job_token(process_environment()) ? draw_job_token() : "";
}

std::vector<std::string> environment_with(const Variables& changes) {
  std::vector<std::string> result;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view variable(*at);
    const std::string name(variable.substr(0, variable.find('=')));
    if (changes.count(name) == 0) result.emplace_back(variable);
  }
  for (const auto& [name, value] : changes) result.push_back(absl::StrCat(name, "=", value));
  return result;
}

}  // namespace sinew::internal
