#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "sinew/link.pb.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/rpc/base/threads/timer_queue.h"
#include "sinew/rpc/link/dial_turns.h"
#include "sinew/rpc/link/hello.h"
#include "sinew/rpc/link/link_runner.h"
#include "sinew/rpc/transport/quota.h"
#include "sinew/rpc/transport/transport.h"

namespace sinew::internal {

struct LinkTableOptions {
  /// Its address is that of the transport, see start().
  SelfDescription self;
  LinkLimits limits;
  LeaseTerms terms;
  /// Requests, and replies, to one peer that may be here without a receipt.
  std::uint64_t send_window_bytes = std::uint64_t{256} << 20;
  /// Makes who uses a new link. It is kept until the link has ended.
  std::function<std::shared_ptr<LinkUser>(const std::shared_ptr<LinkRunner>&)> make_user;
  /// Whether a worker that opens a connection has been taken for lost, or has left.
  std::function<Refusal(const WorkerInfo&)> known_as;
  /// Takes a connection of one that asks for the registrar of the job. May be null: there is none.
  std::function<absl::StatusOr<Acceptor::Accepted>(const proto::Hello& said)> on_registrar_asked;
  /// Whether it is a member: strangers have a bounded number of links between them.
  std::function<bool(const WorkerInfo&)> is_member;
};

/// All links of one worker, by name and incarnation of the other end, and the connections that come
/// in for them. Thread-safe.
class LinkTable final : public Acceptor {
 public:
  /// Links with workers that are no members. Anybody may say to be one that is about to join.
  static constexpr std::size_t kMaxGuests = 1024;
  /// Bytes that have arrived from them, or were announced, and are kept here: from each, from one
  /// origin, from all.
  static constexpr std::size_t kMaxGuestBytes = std::size_t{4} << 20;
  static constexpr std::size_t kMaxGuestBytesOfOrigin = std::size_t{32} << 20;
  static constexpr std::size_t kMaxGuestBytesInAll = std::size_t{64} << 20;
  /// Links that have ended and are remembered.
  static constexpr std::size_t kMaxEnded = 1024;

  /// `executor` and `timers` outlive it, and so does the transport that start() names.
  /// `clock`: by which first attempts wait for their turn; that of `timers`.
  LinkTable(LinkTableOptions options, Executor& executor, Timers& timers,
            const Clock& clock = Clock::system());

  /// From here on connections are made, and accepted: what they need of the worker is there.
  void start(Transport& transport);

  struct Link {
    std::shared_ptr<LinkRunner> runner;
    std::shared_ptr<LinkUser> user;
  };
  /// The link with a worker; made if there is none. The reason of close() after that.
  absl::StatusOr<Link> find_or_make(const WorkerInfo& peer, const std::string& address);
  /// Both are null if there is none.
  Link find(const WorkerInfo& peer) const;

  /// Ends all links; none is made any more.
  void close(const absl::Status& reason);
  std::vector<Link> all() const;

  // Acceptor
  absl::StatusOr<Accepted> on_connection(const std::string& hello,
                                         const AuthenticatedPeer& remote) override;

  // For the runners.
  const LinkTableOptions& options() const { return options_; }
  const SelfDescription& self() const { return options_.self; }
  Transport& transport() const { return *transport_; }
  Executor& executor() const { return executor_; }
  Timers& timers() const { return timers_; }
  DialTurns& dial_turns() const { return *dial_turns_; }
  const std::shared_ptr<Quota>& guest_room() const { return guest_room_; }
  /// A link has ended: nothing can come of it any more.
  void forget(const LinkRunner& runner);

 private:
  bool has_ended(const WorkerInfo& peer) const;
  absl::Status check_stranger(const proto::Hello& said, const WorkerInfo& peer);
  std::size_t count_guests() const;
  void drop_unused_guests();

  struct Key {
    std::string name;
    Incarnation incarnation;
    friend bool operator==(const Key& a, const Key& b) {
      return a.incarnation == b.incarnation && a.name == b.name;
    }
    template <class H>
    friend H AbslHashValue(H h, const Key& key) {
      return H::combine(std::move(h), key.name, key.incarnation);
    }
  };
  LinkTableOptions options_;
  Executor& executor_;
  Timers& timers_;
  const std::shared_ptr<DialTurns> dial_turns_;
  const std::shared_ptr<Quota> guest_room_ =
      std::make_shared<Quota>(kMaxGuestBytesInAll, kMaxGuestBytesOfOrigin);

  mutable Mutex mutex_;
  // Set once, before anything uses it.
  Transport* transport_ = nullptr;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status close_reason_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Key, Link> links_ ABSL_GUARDED_BY(mutex_);
  // The latest links that have ended: a loss is known longer than its link.
  std::deque<Key> ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
