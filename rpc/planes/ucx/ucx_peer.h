#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/planes/challenge.h"
#include "sinew/rpc/planes/pull_plane.h"
#include "sinew/rpc/planes/ucx/ucx_engine.h"

namespace sinew::internal {

/// What one link and its peer say to each other by UCX: as the owner of what it has located, and as
/// the reader of what the peer has.
class UcxPeer final : public UcxReceiver, public std::enable_shared_from_this<UcxPeer> {
 public:
  using OnEnd = PullLink::OnEnd;

  /// Hears messages with `token`.
  UcxPeer(std::shared_ptr<UcxEngine> engine, const UcxToken& token)
      : engine_(std::move(engine)), token_(token) {}

  // On any thread.

  std::uint64_t add(const absl::Cord& payload);
  void remove(std::uint64_t handle);
  /// Nothing that is sent counts from here on.
  void close();

  // On the engine's thread.

  /// Where the peer is, and what it is to be shown when it challenges.
  void open(std::string worker_address, const UcxToken& token, const Digest& shown);
  /// Asks the peer for its digest.
  void check(const Digest& expected, OnEnd on_end);
  void fetch(std::uint64_t handle, PullTarget target, OnEnd on_end);
  /// Ends all fetches. Nothing may be asked after that. What UCX has under way goes on until it
  /// ends by itself, counts for nothing, and keeps this and its memory.
  void shut();

 private:
  struct Located {
    absl::Cord payload;
    /// Each is served once.
    bool is_served = false;
  };
  /// A question that the peer has not answered (in full) yet.
  struct Ask {
    UcxHeader header;
    Digest expected{};
    PullTarget target;
    OnEnd on_end;
    UcxEngine::Timer timer;
    bool data_began = false;
    bool data_ended = false;
    bool is_done = false;
  };

  void on_message(const UcxMessage& message) override;
  void on_endpoint_error(UcxEndpoint* endpoint, const absl::Status& status) override;

  absl::StatusOr<UcxEndpoint*> endpoint();
  void end_all(const absl::Status& status);
  std::chrono::nanoseconds time_for(std::size_t size_bytes) const;

  // As the owner.
  void answer(UcxHeader question, UcxHeader::Kind kind, std::string text = {});
  void serve(const UcxHeader& question);
  void send_data(const UcxHeader& question, absl::Cord payload);
  std::optional<absl::Cord> begin_serving(const UcxHeader& question);
  bool is_located(std::uint64_t handle);

  // As the reader.
  void ask(std::shared_ptr<Ask> ask);
  void on_digest(const UcxMessage& message, const std::shared_ptr<Ask>& ask);
  void on_data(const UcxMessage& message, const std::shared_ptr<Ask>& ask);
  void on_progress(const std::shared_ptr<Ask>& ask);
  void end(std::uint64_t sequence, absl::Status status);

  const std::shared_ptr<UcxEngine> engine_;
  const UcxToken token_;

  Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t last_handle_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<std::uint64_t, Located> located_ ABSL_GUARDED_BY(mutex_);

  // Of the engine's thread.
  std::string remote_address_;
  UcxToken remote_token_{};
  Digest shown_{};
  bool shut_ = false;
  UcxEndpoint* endpoint_ = nullptr;
  std::uint64_t last_sequence_ = 0;
  absl::flat_hash_map<std::uint64_t, std::shared_ptr<Ask>> asks_;
};

}  // namespace sinew::internal
