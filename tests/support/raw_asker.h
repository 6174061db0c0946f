#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/membership/registrar/registry_channel.h"
#include "sinew/rpc/membership/registrar/registry_codec.h"
#include "sinew/rpc/transport/credentials.h"
#include "sinew/rpc/transport/transport.h"

namespace sinew::testing {

/// Somebody who asks a job's registrar by hand, over a connection of gRPC: for what no worker of
/// ours would ever say. Not thread-safe.
class RawAsker {
 public:
  /// `claims` is who it says it is. Without an incarnation there, it has that of its own key.
  explicit RawAsker(WorkerInfo claims, Credentials credentials = Credentials::insecure());
  /// With the key of another one that it is.
  RawAsker(WorkerInfo claims, std::shared_ptr<const internal::WorkerKey> key,
           Credentials credentials = Credentials::insecure());
  ~RawAsker();
  RawAsker(const RawAsker&) = delete;
  RawAsker& operator=(const RawAsker&) = delete;

  const WorkerInfo& claims() const { return claims_; }
  /// What it knows of the job's token.
  void set_token(std::string token) { token_ = std::move(token); }
  /// Opens a connection; it is sent away if `address` is not a registrar's. OK, or why it is down.
  absl::Status open(const std::string& address);

  void say(const internal::registry::Request& request, std::uint64_t echo = 0);
  void say_bytes(std::string bytes);
  /// A join that asks for that place, with the address of this one.
  internal::registry::Join join_as(std::int32_t rank, std::int32_t world_size,
                                   const std::string& job = "default") const;

  /// What the registrar has said so far, the latest last.
  std::vector<internal::registry::Answer> heard() const;
  /// The bytes of that.
  std::string heard_bytes() const;
  /// Waits until it has said something of that kind; null: it has not.
  template <class Kind>
  std::unique_ptr<Kind> wait() const {
    return wait_for<Kind>([](const Kind&) { return true; });
  }
  template <class Kind>
  std::unique_ptr<Kind> wait_for(const std::function<bool(const Kind&)>& is_it) const {
    std::unique_ptr<Kind> found;
    wait_until([&] {
      for (const internal::registry::Answer& each : heard()) {
        const Kind* const kind = std::get_if<Kind>(&each);
        if (kind != nullptr && is_it(*kind)) found = std::make_unique<Kind>(*kind);
      }
      return found != nullptr;
    });
    return found;
  }
  bool wait_down() const;

 private:
  struct State;
  static void wait_until(const std::function<bool()>& is_so);

  const std::shared_ptr<const internal::WorkerKey> key_;
  const WorkerInfo claims_;
  std::string token_;
  const std::unique_ptr<internal::Transport> transport_;
  const std::unique_ptr<internal::Acceptor> acceptor_;
  std::shared_ptr<State> state_;
  std::shared_ptr<internal::RegistryChannel> channel_;
};

}  // namespace sinew::testing
