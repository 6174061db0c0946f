// Texts of users, environments and files.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "sinew/optim/internal/checkpoint_folder.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/internal/launch_environment.h"
#include "sinew/rpc/membership/rendezvous.h"
#include "sinew/tests/fuzz/target.h"

namespace sinew::fuzz {
namespace {

EnvironmentReader environment_of(std::string_view text) {
  std::map<std::string, std::string> variables;
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    variables.insert(absl::StrSplit(line, absl::MaxSplits('=', 1)));
  }
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::make_optional(found->second);
  };
}

std::vector<std::string> urls() {
  return {"tcp://host:29500?rank=1&world_size=4", "tcp://[::1]:29500,127.0.0.1:1",
          "file:///shared/job-17?rank=0&world_size=2", "inproc://name",
          "etcd://etcd0:2379,etcd1/jobs/17"};
}

bool feed_url(std::string_view bytes) {
  const auto place = parse_rendezvous(bytes, std::nullopt, std::nullopt, environment_of(""));
  if (!place.ok()) return false;
  expect(place->rank >= -1 && place->world_size >= 0, "a rank and a world size");
  expect(place->world_size == 0 || place->rank < place->world_size, "a rank of its world");
  internal::dial_addresses(*place);
  return true;
}

std::vector<std::string> environments() {
  return {"RANK=1\nWORLD_SIZE=4\nMASTER_ADDR=host\nMASTER_PORT=29500\nLOCAL_RANK=0",
          "SLURM_PROCID=3\nSLURM_NTASKS=8\nSLURM_JOB_ID=17\nSLURM_STEP_ID=0\nSLURM_NODEID=1\n"
          "SLURM_LOCALID=1\nSLURM_STEP_NODELIST=node[1-3,7]\nSLURM_NNODES=4\nSLURM_NODELIST=node1",
          "OMPI_COMM_WORLD_RANK=0\nOMPI_COMM_WORLD_SIZE=2\nMASTER_ADDR=[::1]\nMASTER_PORT=1",
          "PMI_RANK=1\nPMI_SIZE=2\nMASTER_ADDR=h\nMASTER_PORT=65535"};
}

bool feed_environment(std::string_view bytes) {
  const auto environment = internal::LaunchEnvironment::read(environment_of(bytes));
  if (!environment.ok()) return false;
  const auto place = environment->place();
  if (!place.ok()) return false;
  expect(place->rank >= 0 && place->rank < place->world_size, "a rank of its world");
  return true;
}

std::vector<std::string> manifests() {
  internal::CheckpointManifest manifest;
  manifest.worker = "worker";
  manifest.number = 3;
  manifest.save = 77;
  manifest.optimizer = "SGD";
  manifest.notes.note = "a note\nof lines";
  manifest.notes.grad_scaler.emplace();
  manifest.data_bytes = 1000;
  manifest.data_sha256 = std::string(64, 'a');
  manifest.parameters = {"0 Float [3, 4]"};
  manifest.kept = {"Float [4]"};
  return {manifest.to_text()};
}

bool feed_manifest(std::string_view bytes) {
  try {
    internal::CheckpointManifest::parse(std::string(bytes), "file").to_text();
  } catch (const RpcError& error) {
    expect(error.code() == ErrorCode::kDataLoss, "one error");
    return false;
  }
  return true;
}

}  // namespace

std::vector<Target> text_targets() {
  return {{"rendezvous_url", urls, feed_url},
          {"launch_environment", environments, feed_environment},
          {"checkpoint_manifest", manifests, feed_manifest}};
}

}  // namespace sinew::fuzz
