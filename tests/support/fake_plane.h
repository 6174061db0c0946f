#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/transport/plane/pull_plane.h"

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
  std::unique_ptr<PullLink> open(std::string local_hello, std::string remote_hello) override {
    return std::make_unique<Link>(*this, std::move(local_hello), std::move(remote_hello));
  }

  std::atomic<Behaviour> behaviour{Behaviour::kWorks};
  /// What verify() says.
  absl::Status verdict;
  std::atomic<int> located{0};
  std::atomic<int> closed{0};

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
    char* to = nullptr;
    std::size_t size_bytes = 0;
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
    absl::Status verify(absl::string_view proof) override {
      if (proof != absl::StrCat(challenge_, " by ", remote_)) {
        return absl::InvalidArgumentError("malformed proof of the plane of a test");
      }
      return plane_.verdict;
    }
    std::optional<std::string> locate(absl::string_view bytes) override {
      ++plane_.located;
      const char* const data = bytes.data();
      std::string location(sizeof data, '\0');
      std::memcpy(location.data(), &data, sizeof data);
      return location;
    }
    void fetch(absl::string_view location, char* to, std::size_t size_bytes,
               OnEnd on_end) override {
      plane_.fetch({std::string(location), to, size_bytes, std::move(on_end)});
    }
    bool fetches_in_place() const override { return false; }
    void close() override { ++plane_.closed; }

   private:
    FakePlane& plane_;
    const std::string local_;
    const std::string remote_;
    const std::string challenge_ = "challenge";
  };

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
      std::memcpy(fetch.to, data, fetch.size_bytes);
    }
    std::move(fetch.on_end)(status);
  }

  const std::uint32_t number_;
  mutable Mutex mutex_;
  std::vector<Fetch> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sinew::internal
