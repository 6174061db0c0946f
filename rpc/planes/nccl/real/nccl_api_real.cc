#include <nccl.h>

#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "sinew/rpc/planes/nccl/environment.h"
#include "sinew/rpc/planes/nccl/nccl_api.h"

static_assert(NCCL_VERSION_CODE >= sinew::internal::kMinNcclVersion,
              "Sinew's NCCL plane needs NCCL 2.27 or newer");
static_assert(NCCL_UNIQUE_ID_BYTES == sinew::internal::NcclApi::kIdBytes);
static_assert(std::is_pointer_v<ncclComm_t>);

namespace sinew::internal {
namespace {

absl::Status to_status(ncclResult_t result, ncclComm_t comm, const char* call) {
  if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(call, ": ", ncclGetErrorString(result), " (", ncclGetLastError(comm), ")"));
}

absl::StatusOr<NcclProgress> to_progress(ncclResult_t result, ncclComm_t comm, const char* call) {
  if (result == ncclInProgress) return NcclProgress::kInProgress;
  absl::Status status = to_status(result, comm, call);
  if (!status.ok()) return status;
  return NcclProgress::kDone;
}

class RealNccl final : public NcclApi {
 public:
  int version() const override {
    int version = 0;
    return ncclGetVersion(&version) == ncclSuccess ? version : 0;
  }

  absl::StatusOr<std::string> get_unique_id() override {
    ncclUniqueId id;
    absl::Status status = to_status(ncclGetUniqueId(&id), nullptr, "ncclGetUniqueId");
    if (!status.ok()) return status;
    return std::string(id.internal, sizeof(id.internal));
  }

  Initialised init_rank(const std::string& id, int rank, int max_ctas) override {
    ncclUniqueId unique_id;
    if (id.size() != sizeof(unique_id.internal)) {
      return {nullptr, absl::InvalidArgumentError("an id of NCCL has another size")};
    }
    std::memcpy(unique_id.internal, id.data(), sizeof(unique_id.internal));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.commName = "sinew";
    if (max_ctas > 0) config.maxCTAs = max_ctas;
    ncclComm_t comm = nullptr;
    const ncclResult_t result = ncclCommInitRankConfig(&comm, 2, unique_id, rank, &config);
    return {comm, to_status(result, comm, "ncclCommInitRankConfig")};
  }

  absl::StatusOr<NcclProgress> progress(Comm comm) override {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t result = ncclCommGetAsyncError(handle(comm), &state);
    absl::Status status = to_status(result, handle(comm), "ncclCommGetAsyncError");
    if (!status.ok()) return status;
    return to_progress(state, handle(comm), "NCCL");
  }

  absl::Status group_start() override {
    return to_status(ncclGroupStart(), nullptr, "ncclGroupStart");
  }

  absl::Status send(Comm comm, const void* data, std::size_t size_bytes, void* stream) override {
    return to_status(ncclSend(data, size_bytes, ncclUint8, peer_of(comm), handle(comm),
                              static_cast<cudaStream_t>(stream)),
                     handle(comm), "ncclSend");
  }

  absl::Status recv(Comm comm, void* data, std::size_t size_bytes, void* stream) override {
    return to_status(ncclRecv(data, size_bytes, ncclUint8, peer_of(comm), handle(comm),
                              static_cast<cudaStream_t>(stream)),
                     handle(comm), "ncclRecv");
  }

  absl::StatusOr<NcclProgress> group_end() override {
    return to_progress(ncclGroupEnd(), nullptr, "ncclGroupEnd");
  }

  absl::Status abort(Comm comm) override {
    return to_status(ncclCommAbort(handle(comm)), nullptr, "ncclCommAbort");
  }

 private:
  static ncclComm_t handle(Comm comm) { return static_cast<ncclComm_t>(comm); }

  // The other one of two.
  static int peer_of(Comm comm) {
    int rank = 0;
    // Of a communicator that is ready this cannot fail.
    (void)ncclCommUserRank(handle(comm), &rank);
    return 1 - rank;
  }
};

}  // namespace

std::shared_ptr<NcclApi> make_nccl_api() { return std::make_shared<RealNccl>(); }

}  // namespace sinew::internal
