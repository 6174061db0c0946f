#include "sinew/groups/internal/backend_choice.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "c10/util/Exception.h"
#include "sinew/rpc/base/error.h"
#include "torch/csrc/distributed/c10d/PrefixStore.hpp"

namespace sinew::internal {
namespace {

constexpr char kForms[] = "write gloo, nccl or mpi, or by device: cpu:gloo,cuda:nccl";

absl::Status invalid(std::string_view text, std::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("the backend '", printable(text, 256), "' ", std::string(why), "; ", kForms));
}

absl::StatusOr<c10::DeviceType> device_of_backend(const std::string& name, std::string_view text) {
  if (name == "gloo" || name == "mpi") return c10::DeviceType::CPU;
  if (name == "nccl") return c10::DeviceType::CUDA;
  return invalid(text, absl::StrCat("names '", printable(name, 64), "', which is none"));
}

std::unique_ptr<Backend> make_backend(const std::string& name, const BackendRequest& request) {
  if (name == "nccl") return make_nccl_backend(request);
  if (name == "mpi") return make_mpi_backend(request);
  return make_gloo_backend(request);
}

}  // namespace

absl::StatusOr<BackendChoice> parse_backends(std::string_view text) {
  BackendChoice choice;
  if (text.empty()) {
#ifdef SINEW_GROUPS_WITH_GLOO
    choice[c10::DeviceType::CPU] = "gloo";
#endif
#ifdef SINEW_GROUPS_WITH_NCCL
    choice[c10::DeviceType::CUDA] = "nccl";
#endif
    if (choice.empty()) {
      return absl::UnimplementedError(
          "Sinew was built without Gloo's headers (Debian: libgloo-dev) and without NCCL: groups "
          "have no backend here");
    }
    return choice;
  }
  for (const std::string& part :
       std::vector<std::string>(absl::StrSplit(absl::string_view(text.data(), text.size()), ','))) {
    const std::vector<std::string> sides = absl::StrSplit(part, ':');
    absl::StatusOr<c10::DeviceType> device = device_of_backend(sides.back(), text);
    if (!device.ok()) return device.status();
    if (sides.size() > 2) return invalid(text, "has more than one colon in a part");
    if (sides.size() == 2) {
      const bool is_cpu = sides.front() == "cpu";
      if (!is_cpu && sides.front() != "cuda") {
        return invalid(text, absl::StrCat("names the device '", printable(sides.front(), 64), "'"));
      }
      if (is_cpu != (*device == c10::DeviceType::CPU)) {
        return invalid(text, absl::StrCat("gives ", sides.front(), " to ", sides.back(),
                                          ", which does not work on it"));
      }
    }
    if (!choice.emplace(*device, sides.back()).second) {
      return invalid(text, "names two backends for one device");
    }
  }
  return choice;
}

std::string backends_text(const BackendChoice& choice) {
  std::vector<std::string> parts;
  for (const auto& [device, name] : choice) {
    parts.push_back(absl::StrCat(c10::DeviceTypeName(device, /*lower_case=*/true), ":", name));
  }
  return absl::StrJoin(parts, ",");
}

bool is_mpi_alone(const BackendChoice& choice) {
  return std::all_of(choice.begin(), choice.end(),
                     [](const auto& entry) { return entry.second == "mpi"; });
}

std::map<c10::DeviceType, std::shared_ptr<Backend>> make_backends(const BackendChoice& choice,
                                                                  const BackendRequest& request) {
  std::map<c10::DeviceType, std::shared_ptr<Backend>> backends;
  for (const auto& [device, name] : choice) {
    BackendRequest own = request;
    if (request.store != nullptr) {
      own.store = c10::make_intrusive<c10d::PrefixStore>(name, request.store);
    }
    try {
      backends.emplace(device, make_backend(name, own));
    } catch (const RpcError&) {
      throw;
    } catch (...) {
      throw RpcError(ErrorCode::kUnavailable,
                     absl::StrCat("the backend ", name, " of the group '", request.group,
                                  "' did not start: ", describe(std::current_exception()).message));
    }
  }
  return backends;
}

}  // namespace sinew::internal
