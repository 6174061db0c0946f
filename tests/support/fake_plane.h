#pragma once

#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/planes/pull_plane.h"

namespace sinew::internal {

/// A plane between transports of one process, which does as it is told.
class FakePlane final : public PullPlane {
 public:
  enum class Behaviour {
    kWorks,
    kFails,
    /// Fetches wait for answer_all().
    kWaits,
    /// Fetches say that what the peer has located makes no sense.
    kRefuses,
  };
  explicit FakePlane(std::uint32_t number = 77) : number_(number) {}

  std::uint32_t number() const override { return number_; }
  absl::string_view name() const override { return "the plane of a test"; }
  std::unique_ptr<PullLink> open(ConnectionEnds ends) override {
    return std::make_unique<Link>(*this, std::move(ends.local_hello), std::move(ends.remote_hello));
  }

  std::atomic<Behaviour> behaviour{Behaviour::kWorks};
  /// What verify() says, or end_verifications() when it waits.
  absl::Status verdict;
  bool verifies_later = false;
  /// Makes locations longer.
  std::atomic<std::size_t> padding_bytes{0};
  std::atomic<int> located{0};
  std::atomic<int> released{0};
  std::atomic<int> closed{0};

  void end_verifications() {
    std::vector<PullLink::OnEnd> ends;
    {
      MutexLock lock(mutex_);
      ends.swap(verifications_);
    }
    for (PullLink::OnEnd& on_end : ends) std::move(on_end)(verdict);
  }
  std::size_t waiting() const {
    MutexLock lock(mutex_);
    return waiting_.size();
  }
  void answer_all(const absl::Status& status) {
    std::vector<Fetch> fetches;
    {
      MutexLock lock(mutex_);
      fetches.swap(waiting_);
    }
    for (Fetch& fetch : fetches) finish(std::move(fetch), status);
  }

 private:
  struct Fetch {
    std::string location;
    PullTarget target;
    PullLink::OnEnd on_end;
  };

  class Link final : public PullLink {
   public:
    Link(FakePlane& plane, std::string local_hello, std::string remote_hello)
        : plane_(plane), local_(std::move(local_hello)), remote_(std::move(remote_hello)) {}

    const std::string& challenge() const override { return challenge_; }
    absl::StatusOr<std::string> prove(absl::string_view challenge) override {
      return absl::StrCat(challenge, " by ", local_);
    }
    void verify(absl::string_view proof, OnEnd on_end) override {
      if (proof != absl::StrCat(challenge_, " by ", remote_)) {
        std::move(on_end)(absl::InvalidArgumentError("malformed proof of the plane of a test"));
        return;
      }
      plane_.verify(std::move(on_end));
    }
    std::optional<std::string> locate(const absl::Cord& payload) override {
      ++plane_.located;
      const char* const data = payload.TryFlat()->data();
      std::string location(sizeof data + plane_.padding_bytes, '\0');
      std::memcpy(location.data(), &data, sizeof data);
      return location;
    }
    void release(absl::string_view) override { ++plane_.released; }
    void fetch(absl::string_view location, PullTarget target, OnEnd on_end) override {
      plane_.fetch({std::string(location), std::move(target), std::move(on_end)});
    }
    bool fetches_in_place() const override { return false; }
    void close() override { ++plane_.closed; }

   private:
    FakePlane& plane_;
    const std::string local_;
    const std::string remote_;
    const std::string challenge_ = "challenge";
  };

  void verify(PullLink::OnEnd on_end) {
    if (!verifies_later) {
      std::move(on_end)(verdict);
      return;
    }
    MutexLock lock(mutex_);
    verifications_.push_back(std::move(on_end));
  }
  void fetch(Fetch fetch) {
    switch (behaviour.load()) {
      case Behaviour::kWorks:
        finish(std::move(fetch), absl::OkStatus());
        return;
      case Behaviour::kFails:
        finish(std::move(fetch), absl::UnavailableError("as the test wants"));
        return;
      case Behaviour::kRefuses:
        finish(std::move(fetch), absl::InvalidArgumentError("no such location"));
        return;
      case Behaviour::kWaits:
        MutexLock lock(mutex_);
        waiting_.push_back(std::move(fetch));
    }
  }
  static void finish(Fetch fetch, const absl::Status& status) {
    if (status.ok()) {
      const char* data = nullptr;
      std::memcpy(&data, fetch.location.data(), sizeof data);
      std::memcpy(fetch.target.to, data, fetch.target.size_bytes);
    }
    std::move(fetch.on_end)(status);
  }

  const std::uint32_t number_;
  mutable Mutex mutex_;
  std::vector<PullLink::OnEnd> verifications_ ABSL_GUARDED_BY(mutex_);
  std::vector<Fetch> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
