#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "gtest/gtest.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/transport/transport.h"
#include "sinew/tests/transport/happening.h"

namespace sinew::internal {

/// Records what happens on one connection, checks the order that ConnectionHandler promises, and
/// fails the test if the connection never went down: a callback that must come is a bomb.
class RecordingHandler : public ConnectionHandler {
 public:
  struct Batch {
    Lane lane;
    std::size_t frames;
  };
  struct Announced {
    Lane lane;
    std::string header;
    std::uint64_t size_bytes;
    std::size_t payloads;
  };
  struct Lost {
    Lane lane;
    std::string header;
    std::uint64_t size_bytes;
    absl::Status reason;
  };
  using UpHook = std::function<void(const std::shared_ptr<Connection>&)>;
  using FramesHook =
      std::function<void(const std::shared_ptr<Connection>&, Lane, std::vector<Frame>&)>;

  using AnnouncedHook =
      std::function<absl::Status(Lane, absl::string_view header, std::uint64_t size_bytes)>;

  ~RecordingHandler() override { EXPECT_TRUE(down_) << "on_down never came"; }

  // Before the connection is opened.
  void set_up_hook(UpHook hook) { up_hook_ = std::move(hook); }
  void set_frames_hook(FramesHook hook) { frames_hook_ = std::move(hook); }
  void set_announced_hook(AnnouncedHook hook) { announced_hook_ = std::move(hook); }
  void set_may_send_ahead(bool may) { may_send_ahead_ = may; }
  /// For a handler that is never told of a connection.
  void disarm() {
    MutexLock lock(mutex_);
    down_ = true;
  }

  void on_up(const std::shared_ptr<Connection>& connection) override {
    {
      MutexLock lock(mutex_);
      EXPECT_FALSE(forbidden_) << "on_up after shutdown()";
      EXPECT_FALSE(up_) << "on_up twice";
      EXPECT_FALSE(down_) << "on_up after on_down";
      connection_ = connection;
    }
    if (up_hook_) up_hook_(connection);
    MutexLock lock(mutex_);
    up_ = true;
    changed_.notify_all();
  }

  void on_frames(const std::shared_ptr<Connection>& connection, Lane lane,
                 std::vector<Frame> frames) override {
    std::atomic<bool>& busy = busy_[static_cast<std::size_t>(lane)];
    EXPECT_FALSE(busy.exchange(true)) << "on_frames of one lane overlap";
    EXPECT_FALSE(frames.empty());
    if (frames_hook_) frames_hook_(connection, lane, frames);
    {
      MutexLock lock(mutex_);
      EXPECT_FALSE(forbidden_) << "on_frames after shutdown()";
      EXPECT_TRUE(up_) << "on_frames before on_up";
      EXPECT_FALSE(down_) << "on_frames after on_down";
      batches_.push_back({lane, frames.size()});
      for (Frame& frame : frames) {
        frames_[static_cast<std::size_t>(lane)].push_back(std::move(frame));
      }
      changed_.notify_all();
    }
    busy = false;
  }

  absl::Status on_announced(const std::shared_ptr<Connection>&, Lane lane, absl::string_view header,
                            std::uint64_t size_bytes, std::size_t payloads) override {
    if (announced_hook_) {
      if (absl::Status status = announced_hook_(lane, header, size_bytes); !status.ok()) {
        return status;
      }
    }
    MutexLock lock(mutex_);
    EXPECT_FALSE(forbidden_) << "on_announced after shutdown()";
    EXPECT_TRUE(up_) << "on_announced before on_up";
    EXPECT_FALSE(down_) << "on_announced after on_down";
    announced_.push_back({lane, std::string(header), size_bytes, payloads});
    return absl::OkStatus();
  }

  bool may_send_ahead() const override { return may_send_ahead_; }

  void on_lost(const std::shared_ptr<Connection>&, Lane lane, absl::string_view header,
               std::uint64_t size_bytes, std::size_t, const absl::Status& reason) override {
    MutexLock lock(mutex_);
    EXPECT_FALSE(forbidden_) << "on_lost after shutdown()";
    EXPECT_TRUE(up_) << "on_lost before on_up";
    EXPECT_FALSE(down_) << "on_lost after on_down";
    lost_.push_back({lane, std::string(header), size_bytes, reason});
    changed_.notify_all();
  }

  void on_down(const std::shared_ptr<Connection>& connection, const absl::Status& reason) override {
    MutexLock lock(mutex_);
    EXPECT_FALSE(forbidden_) << "on_down after shutdown()";
    EXPECT_FALSE(down_) << "on_down twice";
    EXPECT_FALSE(reason.ok()) << "on_down with OK";
    EXPECT_TRUE(connection_ == nullptr || connection == connection_);
    down_ = true;
    reason_ = reason;
    changed_.notify_all();
  }

  bool wait_up() {
    return wait([this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return up_; });
  }
  bool wait_down() {
    return wait([this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return down_; });
  }
  bool wait_frames(Lane lane, std::size_t count) {
    return wait([this, lane, count]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return frames_[static_cast<std::size_t>(lane)].size() >= count;
    });
  }

  /// The frames for which there was no memory, waiting for the first one.
  std::vector<Lost> wait_lost() {
    MutexLock lock(mutex_);
    wait_patiently(mutex_, changed_,
                   [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return !lost_.empty(); });
    return lost_;
  }

  std::shared_ptr<Connection> connection() const {
    MutexLock lock(mutex_);
    return connection_;
  }
  bool is_up() const {
    MutexLock lock(mutex_);
    return up_;
  }
  bool is_down() const {
    MutexLock lock(mutex_);
    return down_;
  }
  absl::Status reason() const {
    MutexLock lock(mutex_);
    return reason_;
  }
  std::size_t frame_count(Lane lane) const {
    MutexLock lock(mutex_);
    return frames_[static_cast<std::size_t>(lane)].size();
  }
  std::vector<std::string> envelopes(Lane lane) const {
    MutexLock lock(mutex_);
    std::vector<std::string> envelopes;
    for (const Frame& frame : frames_[static_cast<std::size_t>(lane)]) {
      envelopes.push_back(frame.envelope);
    }
    return envelopes;
  }
  std::vector<Batch> batches() const {
    MutexLock lock(mutex_);
    return batches_;
  }
  /// Takes the frames that arrived on a lane so far.
  std::vector<Frame> take_frames(Lane lane) {
    MutexLock lock(mutex_);
    return std::exchange(frames_[static_cast<std::size_t>(lane)], {});
  }
  /// What was announced and not refused.
  std::vector<Announced> announced() const {
    MutexLock lock(mutex_);
    return announced_;
  }
  /// From now on every callback fails the test.
  void forbid_callbacks() {
    MutexLock lock(mutex_);
    forbidden_ = true;
  }

 private:
  template <class Condition>
  bool wait(Condition condition) {
    MutexLock lock(mutex_);
    return wait_patiently(mutex_, changed_, condition);
  }

  mutable Mutex mutex_;
  CondVar changed_;
  UpHook up_hook_;
  FramesHook frames_hook_;
  AnnouncedHook announced_hook_;
  std::array<std::atomic<bool>, kLaneCount> busy_{};
  std::shared_ptr<Connection> connection_ ABSL_GUARDED_BY(mutex_);
  bool up_ ABSL_GUARDED_BY(mutex_) = false;
  bool down_ ABSL_GUARDED_BY(mutex_) = false;
  bool forbidden_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status reason_ ABSL_GUARDED_BY(mutex_);
  std::array<std::vector<Frame>, kLaneCount> frames_ ABSL_GUARDED_BY(mutex_);
  std::vector<Batch> batches_ ABSL_GUARDED_BY(mutex_);
  std::vector<Announced> announced_ ABSL_GUARDED_BY(mutex_);
  bool may_send_ahead_ = true;
  std::vector<Lost> lost_ ABSL_GUARDED_BY(mutex_);
};

/// Accepts connections, and records each.
class RecordingAcceptor : public Acceptor {
 public:
  using Decide = std::function<absl::StatusOr<Accepted>(const std::string& hello,
                                                        const AuthenticatedPeer& remote)>;
  std::string hello = "hello from the acceptor";
  /// Prepares each new handler.
  std::function<void(RecordingHandler&)> prepare;
  /// Set: refuses everything with it.
  absl::Status refusal;

  absl::StatusOr<Accepted> on_connection(const std::string& remote_hello,
                                         const AuthenticatedPeer& remote) override {
    MutexLock lock(mutex_);
    hellos_.push_back(remote_hello);
    remotes_.push_back(remote);
    if (!refusal.ok()) return refusal;
    auto handler = std::make_shared<RecordingHandler>();
    if (prepare) prepare(*handler);
    handlers_.push_back(handler);
    changed_.notify_all();
    return Accepted{hello, handler};
  }

  /// The handler of the connection that was accepted as number `index`, waiting for it. Null when
  /// it did not come.
  std::shared_ptr<RecordingHandler> handler(std::size_t index = 0) {
    MutexLock lock(mutex_);
    auto there = [this, index]()
                     ABSL_NO_THREAD_SAFETY_ANALYSIS { return handlers_.size() > index; };
    if (!wait_patiently(mutex_, changed_, there)) return nullptr;
    return handlers_[index];
  }
  std::vector<std::string> hellos() const {
    MutexLock lock(mutex_);
    return hellos_;
  }
  std::vector<AuthenticatedPeer> remotes() const {
    MutexLock lock(mutex_);
    return remotes_;
  }
  std::size_t count() const {
    MutexLock lock(mutex_);
    return handlers_.size();
  }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> hellos_ ABSL_GUARDED_BY(mutex_);
  std::vector<AuthenticatedPeer> remotes_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<RecordingHandler>> handlers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
