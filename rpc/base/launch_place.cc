#include "sinew/rpc/base/launch_place.h"

#include <utility>

#include "absl/status/statusor.h"
#include "sinew/rpc/base/environment.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/internal/launch_environment.h"

namespace sinew {
namespace {

internal::LaunchEnvironment read_environment() {
  absl::StatusOr<internal::LaunchEnvironment> environment =
      internal::LaunchEnvironment::read(process_environment());
  if (!environment.ok()) internal::throw_error(environment.status());
  return *std::move(environment);
}

LaunchPlace place_of(const internal::LaunchEnvironment& environment) {
  absl::StatusOr<LaunchPlace> place = environment.place();
  if (!place.ok()) internal::throw_error(place.status());
  return *std::move(place);
}

}  // namespace

LaunchPlace launch_place() { return place_of(read_environment()); }

std::optional<LaunchPlace> find_launch_place() {
  const internal::LaunchEnvironment environment = read_environment();
  if (!environment.rank() && !environment.world_size()) return std::nullopt;
  return place_of(environment);
}

}  // namespace sinew
