#include "sinew/tests/membership/support/explorer.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace sinew::internal::sim {
namespace {

using Kind = Fault::Kind;

constexpr nanoseconds kDelay = milliseconds(300);
constexpr nanoseconds kShortPause = milliseconds(100);
constexpr nanoseconds kLongPause = seconds(8);
constexpr nanoseconds kShortStop = kLease / 2;
constexpr nanoseconds kLongStop = kLease * 3;
// Until each side has gone its way, and that has been noticed.
constexpr nanoseconds kCutTime = seconds(15);
// Where nothing happens by itself.
constexpr nanoseconds kTick = milliseconds(500);
constexpr nanoseconds kPeace = seconds(100);

/// Before which step it happens.
struct Placed {
  std::size_t step = 0;
  Fault fault;
};

std::string text_of(const std::vector<Placed>& placed) {
  return absl::StrJoin(placed, ", ", [](std::string* out, const Placed& each) {
    absl::StrAppend(out, each.step, ":", sim::text_of(each.fault));
  });
}

template <class Condition>
bool any_kind(const std::vector<Placed>& faults, const Condition& condition) {
  return std::any_of(faults.begin(), faults.end(),
                     [&](const Placed& each) { return condition(each.fault.kind); });
}

bool is_end(Kind kind) {
  return kind == Kind::kKill || kind == Kind::kKillForLong || kind == Kind::kLeave;
}

/// What may come of these faults.
Trouble trouble_of(const std::vector<Placed>& faults) {
  const bool ends = any_kind(faults, is_end);
  const bool parts =
      any_kind(faults, [](Kind kind) { return kind != Kind::kDelay && !is_end(kind); });
  return !parts ? Trouble::kDeaths : ends ? Trouble::kCuts : Trouble::kNoDeaths;
}

/// One run.
class Run {
 public:
  Run(const Scenario& scenario, const std::vector<Placed>& faults, bool narrate = false)
      : scenario_(scenario),
        faults_(faults),
        chance_(Chance::none()),
        job_({scenario.plan.meeting, scenario.plan.size, trouble_of(faults)}, scenario.workers,
             chance_, narrate) {
    job_.pause = [this] { return pause_; };
    for (std::size_t i = 0; i < job_.size(); ++i) {
      const std::size_t last = scenario.starts.size() - 1;
      job_.slot(i).starts = job_.clock().now() + scenario.starts[std::min(i, last)];
    }
    job_.network().on_step = job_.file().on_step = [this] { return on_step(); };
  }

  /// Steps that were taken before which something might have happened.
  std::size_t steps() const { return step_; }
  std::string run() {
    const TimePoint begin = job_.clock().now();
    TimePoint tick = begin + scenario_.from;
    while (job_.clock().now() < begin + scenario_.until && job_.ok()) {
      counts_ = job_.clock().now() >= begin + scenario_.from;
      if (job_.clock().now() >= tick) {
        on_step();
        tick += kTick;
      }
      job_.step();
    }
    counts_ = false;
    // What was to end by itself does.
    pass(kCutTime);
    job_.make_peace();
    if (scenario_.starts_evicted) job_.start_evicted();
    pass(kPeace);
    if (job_.ok()) job_.judge();
    return job_.report().violation;
  }

 private:
  void pass(nanoseconds time) {
    const TimePoint end = job_.clock().now() + time;
    while (job_.clock().now() < end && job_.ok()) job_.step();
  }

  nanoseconds on_step() {
    if (!counts_) return nanoseconds(0);
    const std::size_t step = step_++;
    nanoseconds delay(0);
    for (; next_ < faults_.size() && faults_[next_].step == step; ++next_) {
      job_.say(absl::StrCat("step ", step, ": ", sim::text_of(faults_[next_].fault)));
      if (faults_[next_].fault.kind == Kind::kDelay) {
        delay = kDelay;
      } else {
        happen(faults_[next_].fault);
      }
    }
    return delay;
  }

  void happen(const Fault& fault) {
    Slot& slot = job_.slot(static_cast<std::size_t>(fault.worker));
    switch (fault.kind) {
      case Kind::kKill:
      case Kind::kKillForLong:
        pause_ = fault.kind == Kind::kKill ? kShortPause : kLongPause;
        job_.kill(slot);
        pause_ = kShortPause;
        return;
      case Kind::kStop:
        return job_.stop(slot, kShortStop);
      case Kind::kStopForLong:
        return job_.stop(slot, kLongStop);
      case Kind::kLeave:
        return job_.leave(slot);
      case Kind::kCut:
        cut(fault.other, fault.worker);
        return cut(fault.worker, fault.other);
      case Kind::kCutOneWay:
        return cut(fault.worker, fault.other);
      case Kind::kDelay:
        return;
    }
  }

  void cut(int from, int to) {
    job_.cut(from, to);
    job_.clock().run_at(job_.clock().now() + kCutTime, [this, from, to] { job_.mend(from, to); });
  }

  const Scenario& scenario_;
  const std::vector<Placed>& faults_;
  Chance chance_;
  nanoseconds pause_ = kShortPause;
  bool counts_ = false;
  std::size_t step_ = 0;
  std::size_t next_ = 0;
  Job job_;
};

/// All that may happen, of the scenario's kinds.
std::vector<Fault> all_faults(const Scenario& scenario) {
  std::vector<Fault> all;
  const int count = static_cast<int>(scenario.workers);
  for (const Kind kind : scenario.kinds) {
    if (kind == Kind::kDelay) {
      all.push_back({kind});
      continue;
    }
    for (int worker = 0; worker < count; ++worker) {
      if (kind != Kind::kCut && kind != Kind::kCutOneWay) {
        all.push_back({kind, worker});
        continue;
      }
      for (int other = kind == Kind::kCut ? worker + 1 : 0; other < count; ++other) {
        if (other != worker) all.push_back({kind, worker, other});
      }
    }
  }
  return all;
}

class Search {
 public:
  explicit Search(const Scenario& scenario) : scenario_(scenario), all_(all_faults(scenario)) {}

  Exploration search() {
    std::vector<Placed> none;
    result_.steps = visit(none);
    return result_;
  }

 private:
  /// Those faults, and every way to have more of them after the last one.
  std::size_t visit(std::vector<Placed>& faults) {
    Run run(scenario_, faults);
    const std::string violation = run.run();
    ++result_.runs;
    if (!violation.empty()) {
      result_.violation = absl::StrCat(violation, "; faults: ", text_of(faults));
    }
    const std::size_t steps = run.steps();
    if (static_cast<int>(faults.size()) == scenario_.faults) return steps;
    const std::size_t first = faults.empty() ? 0 : faults.back().step + 1;
    for (std::size_t step = first; step < steps; ++step) {
      for (const Fault& fault : all_) {
        if (!result_.violation.empty()) return steps;
        faults.push_back({step, fault});
        visit(faults);
        faults.pop_back();
      }
    }
    return steps;
  }

  const Scenario& scenario_;
  const std::vector<Fault> all_;
  Exploration result_;
};

}  // namespace

std::string text_of(const Fault& fault) {
  const std::string worker(1, static_cast<char>('a' + fault.worker));
  const std::string other(1, static_cast<char>('a' + fault.other));
  switch (fault.kind) {
    case Kind::kDelay:
      return "delay";
    case Kind::kKill:
      return absl::StrCat("kill ", worker);
    case Kind::kKillForLong:
      return absl::StrCat("kill for long ", worker);
    case Kind::kStop:
      return absl::StrCat("stop ", worker);
    case Kind::kStopForLong:
      return absl::StrCat("stop for long ", worker);
    case Kind::kLeave:
      return absl::StrCat("leave ", worker);
    case Kind::kCutOneWay:
      return absl::StrCat("cut one way ", worker, " ", other);
    case Kind::kCut:
      return absl::StrCat("cut ", worker, " ", other);
  }
  return "";
}

Exploration explore(const Scenario& scenario) { return Search(scenario).search(); }

void narrate(const Scenario& scenario, const std::string& faults) {
  std::vector<Placed> placed;
  for (const auto each : absl::StrSplit(faults, ", ", absl::SkipEmpty())) {
    const std::vector<std::string> parts = absl::StrSplit(each, absl::MaxSplits(':', 1));
    for (const Fault& fault : all_faults(scenario)) {
      if (parts.size() == 2 && text_of(fault) == parts[1]) {
        placed.push_back({std::strtoull(parts[0].c_str(), nullptr, 10), fault});
      }
    }
  }
  Run(scenario, placed, true).run();
}

std::vector<Scenario> scenarios(int level) {
  const std::vector<Kind> all = {Kind::kDelay, Kind::kKill,        Kind::kKillForLong,
                                 Kind::kStop,  Kind::kStopForLong, Kind::kLeave,
                                 Kind::kCut,   Kind::kCutOneWay};
  const std::vector<Kind> worst = {Kind::kDelay, Kind::kKill, Kind::kStopForLong, Kind::kLeave,
                                   Kind::kCut};
  const std::vector<nanoseconds> at_once = {nanoseconds(0)};
  const std::vector<nanoseconds> founder_last = {seconds(2), nanoseconds(0)};
  std::vector<Scenario> scenarios;
  const auto add = [&](const char* name, Meeting meeting, Size size, std::size_t workers,
                       const std::vector<nanoseconds>& starts) {
    const bool pairs = level > 0 || (workers == 2 && meeting == Meeting::kTcp);
    scenarios.push_back(
        {name, {meeting, size}, workers, starts, pairs && level == 0 ? worst : all, pairs ? 2 : 1});
  };
  add("TcpOpenTwo", Meeting::kTcp, Size::kOpen, 2, at_once);
  add("TcpFixedTwo", Meeting::kTcp, Size::kFixed, 2, at_once);
  add("FileOpenTwo", Meeting::kFile, Size::kOpen, 2, at_once);
  add("FileFixedTwo", Meeting::kFile, Size::kFixed, 2, at_once);
  add("SeedsOpenTwo", Meeting::kSeeds, Size::kOpen, 2, at_once);
  add("TcpOpenThree", Meeting::kTcp, Size::kOpen, 3, at_once);
  add("TcpOpenThreeFounderLast", Meeting::kTcp, Size::kOpen, 3, founder_last);
  add("TcpFixedThree", Meeting::kTcp, Size::kFixed, 3, at_once);
  add("SeedsOpenThree", Meeting::kSeeds, Size::kOpen, 3, at_once);
  add("FileOpenThree", Meeting::kFile, Size::kOpen, 3, at_once);
  add("FileFixedThree", Meeting::kFile, Size::kFixed, 3, at_once);
  return scenarios;
}

}  // namespace sinew::internal::sim
