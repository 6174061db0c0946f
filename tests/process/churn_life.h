#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>

#include "sinew/sinew.h"
#include "sinew/tests/process/churn_tally.h"

namespace churn {

/// What a worker is busy with from its joining on.
class Activity {
 public:
  Activity() = default;
  /// Stops.
  virtual ~Activity() = default;
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;
  /// Nothing is done to the job any more, and this ends for good. What it throws is told to who has
  /// asked for it.
  virtual void conclude() {}
};

struct LifeOptions {
  sinew::WorkerOptions worker;
  /// Lives longer.
  Tally* tally = nullptr;
  /// Before each joining: nothing that others have left here is there any more.
  std::function<void()> begin_anew;
  std::function<std::unique_ptr<Activity>(const sinew::Worker&)> make_work;
  /// Drops what others have left here, and takes no more.
  std::function<void()> give_up;
};

/// The workers of a process, one after the other, on a thread of its own: one that is evicted is
/// shut down, and the next one joins, as programs should do it. What happens is told in lines that
/// begin with "event" (see churn_worker.cc).
class Life {
 public:
  explicit Life(LifeOptions options);

  /// Does what a command says, and gives one line: "ok" and an answer, or "error" and why.
  ///
  ///   view           the members that it sees, each as RANK:NAME:INCARNATION
  ///   self           itself, and how it stands: RANK:NAME:INCARNATION member
  ///   tally          what its work has come to: "right=10 UNAVAILABLE=2"
  ///   calm           stops its work for good, and gives up all references
  ///   counters       those that are not zero and should be, when nobody works
  ///   each           calls each other member
  ///   leave graceful|hard MS     and ends
  std::string answer(std::istringstream& words);

 private:
  std::string run(const std::string& command, std::istringstream& words);
  /// The present one; invalid while it looks for the job.
  sinew::Worker worker();
  void calm();
  /// Ends the worker, and the process.
  [[noreturn]] void leave(const sinew::ShutdownOptions& how);
  void live();
  void join();
  void tell_why_it_is_out() const;

  const LifeOptions options_;
  std::mutex mutex_;
  bool calm_ = false;
  bool leaving_ = false;
  sinew::Worker worker_;
  std::unique_ptr<Activity> work_;
  std::thread thread_;
};

}  // namespace churn
