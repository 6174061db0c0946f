#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "sinew/link.pb.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/process_hold.h"
#include "sinew/rpc/link/hello.h"
#include "sinew/rpc/membership/contact.h"
#include "sinew/rpc/transport/transport.h"

namespace sinew::internal {

/// One end of a connection between a worker and a registrar: whole messages, either way. It is no
/// link: it may end and be opened again, whatever became of the links of that worker (ADR 55).
/// Thread-safe.
class RegistryChannel final : public ConnectionHandler,
                              public std::enable_shared_from_this<RegistryChannel> {
 public:
  /// Called on transport threads: they must not block. They may come within open().
  struct Events {
    /// At the opener: who answers.
    std::function<void(const WorkerInfo& answerer)> on_up;
    std::function<void(std::string message)> on_message;
    /// Once, the last one. `process`: at the other end, where the kernel has named it.
    std::function<void(const absl::Status& reason, std::shared_ptr<const ProcessHold> process)>
        on_down;
  };

  /// What a registrar takes of an asker in one message.
  static constexpr std::size_t kMostAskedBytes = std::size_t{16} << 20;

  /// Asks for the registrar at that address.
  static std::shared_ptr<RegistryChannel> open(Transport& transport, const SelfDescription& self,
                                               const Contact& contact, Events events);
  /// The registrar's end.
  static std::shared_ptr<RegistryChannel> accept(Events events);

  RegistryChannel(Events events, std::size_t most_bytes)
      : events_(std::move(events)), most_bytes_(most_bytes) {}

  /// What cannot be sent is lost. Closes the connection where the other end does not read.
  void send(std::string message);
  void close(const absl::Status& reason);

  // ConnectionHandler
  void on_up(const std::shared_ptr<Connection>& connection) override;
  void on_frames(const std::shared_ptr<Connection>& connection, Lane lane,
                 std::vector<Frame> frames) override;
  absl::Status on_announced(const std::shared_ptr<Connection>& connection, Lane lane,
                            absl::string_view header, std::uint64_t size_bytes,
                            std::size_t payloads) override;
  bool may_send_ahead() const override { return false; }
  /// Questions are repeated with each beat.
  void on_lost(const std::shared_ptr<Connection>&, Lane, absl::string_view, std::uint64_t,
               std::size_t, const absl::Status&) override {}
  void on_down(const std::shared_ptr<Connection>& connection, const absl::Status& reason) override;

 private:
  const Events events_;
  const std::size_t most_bytes_;
  /// Of the opener.
  std::unique_ptr<const SelfDescription> self_;

  Mutex mutex_;
  std::shared_ptr<Connection> connection_ ABSL_GUARDED_BY(mutex_);
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
};

/// Tells `on_answer` which process is at that address, or that none listens there (no incarnation).
/// It is not called if there is no reply. It runs on a transport thread.
void ask_who_answers(Transport& transport, const SelfDescription& self, const Contact& contact,
                     std::function<void(Incarnation answerer)> on_answer);

}  // namespace sinew::internal
