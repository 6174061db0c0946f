#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/rpc/membership/control_plane.h"
#include "sinew/tests/support/manual_clock.h"

namespace sinew::testing {

/// A runner whose tasks run in run_until_idle(), in the thread of its caller: in order, or with a
/// seed in an order drawn from it.
class StepRunner final : public internal::TaskRunner {
 public:
  StepRunner() = default;
  explicit StepRunner(std::uint32_t seed) : random_(seed) {}

  bool post(internal::Task task) override;
  /// Returns how many tasks ran.
  std::size_t run_until_idle();

 private:
  internal::Task next();

  internal::Mutex mutex_;
  std::deque<internal::Task> tasks_ ABSL_GUARDED_BY(mutex_);
  std::optional<std::mt19937> random_;
};

/// Lets `time` pass in steps, and runs what has become ready before the first and after each.
void advance_in_steps(StepRunner& runner, ManualClock& clock, std::chrono::nanoseconds time,
                      std::chrono::nanoseconds step);

class FakeControlPlane;

/// The wires between fake control planes. A request and its reply are one task each of the runner.
/// Thread-safe.
class FakeControlNetwork {
 public:
  FakeControlNetwork(std::shared_ptr<internal::TaskRunner> runner, internal::Timers& timers,
                     internal::Clock& clock)
      : runner_(std::move(runner)), timers_(timers), clock_(clock) {}

  /// The worker dies: calls to it fail with kUnavailable, also those under way; its address refuses
  /// with kNotFound.
  void kill(const std::string& address);
  /// What is sent to the address gets lost: calls end with their deadline.
  void silence(const std::string& address);
  /// Both directions between two addresses fail with kUnavailable.
  void cut(const std::string& one, const std::string& other);
  /// Replies from the address get lost, requests arrive.
  void mute(const std::string& address);
  /// From now on certificates cover the names of workers and the one address: who calls another one
  /// says whom it expects there.
  void cover_names_and(const std::string& address);
  /// "method>name", in the order in which requests were handled.
  std::vector<std::string> log() const;

 private:
  friend class FakeControlPlane;
  Future<std::string> call(const FakeControlPlane& from, const std::string& address,
                           absl::Status if_dead, std::string method, std::string body,
                           std::chrono::nanoseconds timeout);
  void deliver(const WorkerInfo& from, const std::string& address, const absl::Status& if_dead,
               const std::string& method, std::string body, const Promise<std::string>& answer);

  bool is_proved(const internal::Contact& contact) const;

  const std::shared_ptr<internal::TaskRunner> runner_;
  internal::Timers& timers_;
  internal::Clock& clock_;
  mutable internal::Mutex mutex_;
  std::map<std::string, FakeControlPlane*> planes_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> silent_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> mute_ ABSL_GUARDED_BY(mutex_);
  std::set<std::pair<std::string, std::string>> cut_ ABSL_GUARDED_BY(mutex_);
  std::optional<std::string> covered_ ABSL_GUARDED_BY(mutex_);
  // Under way, by the address of the callee.
  std::multimap<std::string, Promise<std::string>> open_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> log_ ABSL_GUARDED_BY(mutex_);
};

/// One worker's end.
class FakeControlPlane final : public internal::ControlPlane {
 public:
  FakeControlPlane(FakeControlNetwork& network, WorkerInfo self, std::string address);
  ~FakeControlPlane() override;

  void add_control_method(std::string name, internal::ControlHandler handler) override;
  Future<std::string> control_call(const WorkerInfo& to, std::string_view method, std::string body,
                                   std::chrono::nanoseconds timeout) override;
  Future<std::string> control_call_address(const internal::Contact& contact,
                                           std::string_view method, std::string body,
                                           std::chrono::nanoseconds timeout) override;

  const WorkerInfo& self() const { return self_; }
  const std::string& address() const { return address_; }

 private:
  friend class FakeControlNetwork;
  FakeControlNetwork& network_;
  const WorkerInfo self_;
  const std::string address_;
  std::map<std::string, internal::ControlHandler> handlers_;
};

}  // namespace sinew::testing
