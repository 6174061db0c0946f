// A transport that a test drives by hand.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/link/header_codec.h"
#include "sinew/rpc/transport/transport.h"
#include "sinew/testing/eventually.h"

namespace sinew::internal {

/// Keeps what is sent, and goes down only when the test says so.
class HandConnection final : public Connection {
 public:
  explicit HandConnection(std::string hello) : hello_(std::move(hello)) {}

  /// Runs in send() with each numbered frame, before it counts as sent.
  std::function<void(const LinkHeader&)> on_send;
  /// What it says to keep.
  std::atomic<std::uint64_t> kept{0};
  std::uint64_t kept_bytes() const override { return kept; }

  absl::Status send(Lane, Frame frame) override {
    LinkHeader header;
    const absl::Status read = read_header(frame.header, header);
    EXPECT_TRUE(read.ok()) << read;
    if (header.number != 0 && on_send) on_send(header);
    MutexLock lock(mutex_);
    sent_.push_back(header);
    return absl::OkStatus();
  }
  void close(absl::Status reason) override {
    MutexLock lock(mutex_);
    if (closed_.ok()) closed_ = std::move(reason);
  }
  const std::string& remote_hello() const override { return hello_; }
  const AuthenticatedPeer& remote() const override { return remote_; }

  /// What it was closed with; OK: it was not.
  absl::Status closed() const {
    MutexLock lock(mutex_);
    return closed_;
  }
  std::vector<std::uint64_t> numbers() const {
    std::vector<std::uint64_t> numbers;
    MutexLock lock(mutex_);
    for (const LinkHeader& header : sent_) {
      if (header.number != 0) numbers.push_back(header.number);
    }
    return numbers;
  }
  /// The room for requests that was said to have been given back.
  std::uint64_t returned_frames() const {
    std::uint64_t frames = 0;
    MutexLock lock(mutex_);
    for (const LinkHeader& header : sent_) frames = std::max(frames, header.returned_frames);
    return frames;
  }
  /// How many frames of the calls lane have had a receipt.
  std::size_t receipts() const {
    std::size_t frames = 0;
    MutexLock lock(mutex_);
    for (const LinkHeader& header : sent_) {
      for (const NumberRange& range : header.received[static_cast<std::size_t>(Lane::kCalls)]) {
        frames += range.last - range.first + 1;
      }
    }
    return frames;
  }

 private:
  const std::string hello_;
  const AuthenticatedPeer remote_;
  mutable Mutex mutex_;
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
  std::vector<LinkHeader> sent_ ABSL_GUARDED_BY(mutex_);
};

/// Attempts that nobody answers but the test.
class HandTransport final : public Transport {
 public:
  /// Runs in connect().
  std::function<void()> on_connect;

  struct Attempt {
    std::string address;
    std::string hello;
    std::shared_ptr<ConnectionHandler> handler;
  };

  absl::Status start(Acceptor*, UnaryHandler*) override { return absl::OkStatus(); }
  std::string address() const override { return "here"; }
  std::shared_ptr<Connection> connect(const std::string& address, const std::string& hello,
                                      const std::string&,
                                      std::shared_ptr<ConnectionHandler> handler) override {
    if (on_connect) on_connect();
    MutexLock lock(mutex_);
    attempts_.push_back({address, hello, std::move(handler)});
    return std::make_shared<HandConnection>("");
  }
  void shutdown() override {
    while (attempts() > 0) take().handler->on_down(nullptr, absl::CancelledError("shut down"));
  }
  std::size_t attempts() const {
    MutexLock lock(mutex_);
    return attempts_.size();
  }
  /// The first attempt, waiting for it.
  Attempt take() {
    EXPECT_TRUE(sinew::testing::eventually([this] { return attempts() > 0; }));
    MutexLock lock(mutex_);
    if (attempts_.empty()) return {};
    Attempt first = std::move(attempts_.front());
    attempts_.erase(attempts_.begin());
    return first;
  }

 private:
  mutable Mutex mutex_;
  std::vector<Attempt> attempts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
