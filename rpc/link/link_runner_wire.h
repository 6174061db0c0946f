#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "sinew/rpc/link/link_runner.h"

namespace sinew::internal {

/// One connection of the link, or an attempt to make one.
class LinkRunner::Wire final : public ConnectionHandler, public std::enable_shared_from_this<Wire> {
 public:
  Wire(std::shared_ptr<LinkRunner> runner, ConnectionName its_name, std::optional<LinkHello> said)
      : name(its_name), offered(std::move(said)), runner_(std::move(runner)) {}

  void on_up(const std::shared_ptr<Connection>& up) override {
    runner_->wire_up(shared_from_this(), up);
  }
  void on_frames(const std::shared_ptr<Connection>&, Lane, std::vector<Frame> frames) override {
    runner_->wire_frames(shared_from_this(), std::move(frames));
  }
  absl::Status on_announced(const std::shared_ptr<Connection>&, Lane, absl::string_view header,
                            std::uint64_t size_bytes, std::size_t payloads) override {
    return runner_->wire_announced(shared_from_this(), header, size_bytes, payloads);
  }
  bool may_send_ahead() const override { return !runner_->is_guest(); }
  void on_lost(const std::shared_ptr<Connection>&, Lane, absl::string_view header,
               std::uint64_t size_bytes, std::size_t payloads,
               const absl::Status& reason) override {
    runner_->wire_lost(shared_from_this(), header, size_bytes, payloads, reason);
  }
  void on_down(const std::shared_ptr<Connection>& down, const absl::Status& reason) override {
    runner_->wire_down(shared_from_this(), reason,
                       down == nullptr ? nullptr : down->remote_process());
  }

  const ConnectionName name;
  // Where it was dialled, from before that on; empty: the other end has opened it.
  std::string dialled;
  // What the opener said, where the other end is that.
  const std::optional<LinkHello> offered;
  // Guarded by the runner's lock. Null until the transport has made it.
  std::shared_ptr<Connection> connection;
  // Guarded likewise. Until it is up, or down; empty where it needed no turn.
  Credit turn;
  // Guarded likewise. Why it was closed from here; OK: it was not, or for no fault of the other
  // end.
  absl::Status fault;

 private:
  const std::shared_ptr<LinkRunner> runner_;
};

/// What is to be done once the lock is free.
struct LinkRunner::Outcome {
  Link::Outputs outputs;
  /// Where the outputs' frames go; null: nowhere, or another thread writes them.
  std::shared_ptr<Connection> write_to;
  std::vector<std::shared_ptr<Connection>> to_close;
  /// Its other end says to have what it has not taken; null: it does not.
  std::shared_ptr<Connection> lied_on;
  absl::Status reason;
  /// See LinkUser::on_unreached().
  bool unreached = false;
};

}  // namespace sinew::internal
