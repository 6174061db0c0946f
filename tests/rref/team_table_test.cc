#include "sinew/rref/internal/team_table.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace sinew::internal {
namespace {

using Kind = TeamEvent::Kind;
using std::chrono::seconds;

/// A job with two names, whose workers come and go, and objects that are made or not, in any order.
class TeamWorld {
 public:
  static constexpr int kNames = 2;
  static constexpr int kIncarnations = 2;
  static constexpr int kMaxAttempts = 2;

  TeamWorld() : table_(policy()) {}

  /// Each step that can come next, by number; see take().
  std::vector<int> steps() const {
    std::vector<int> next;
    for (int name = 0; name < kNames; ++name) {
      if (alive_[name] == 0 && born_[name] < kIncarnations) next.push_back(name);
      // Lost, and replaced before the loss was told.
      if (alive_[name] != 0) next.push_back(10 + name);
      if (alive_[name] != 0 && born_[name] < kIncarnations) next.push_back(20 + name);
    }
    for (std::size_t i = 0; i < under_way_.size(); ++i) {
      next.push_back(100 + static_cast<int>(i));
      next.push_back(200 + static_cast<int>(i));
    }
    if (table_.next_time() != Clock::TimePoint::max()) next.push_back(30);
    return next;
  }

  void take(int step) {
    TeamTable::Outputs outputs;
    if (step < 10) {
      join(step, outputs);
    } else if (step < 20) {
      table_.on_lost(worker(step - 10), "killed", outputs);
      alive_[step - 10] = 0;
    } else if (step < 30) {
      join(step - 20, outputs);
    } else if (step == 30) {
      now_ = table_.next_time();
      table_.on_time(now_, outputs);
      ASSERT_FALSE(outputs.makes.empty());
    } else {
      const std::size_t which = static_cast<std::size_t>(step % 100);
      const TeamTable::Outputs::Make make = under_way_[which];
      under_way_.erase(under_way_.begin() + static_cast<std::ptrdiff_t>(which));
      const bool is_current = alive_[name_of(make.worker)] == make.worker.incarnation.value;
      if (step < 200) {
        ASSERT_EQ(table_.on_made(make.attempt, outputs), is_current);
      } else {
        table_.on_failed(make.attempt, "no memory", now_, outputs);
      }
    }
    check(outputs);
  }

  /// Whoever is there is ready, given up, or on the way to it.
  void check_end() const {
    for (int name = 0; name < kNames; ++name) {
      const auto found = table_.members().find(std::to_string(name));
      ASSERT_EQ(found != table_.members().end(), alive_[name] != 0);
      if (found == table_.members().end()) continue;
      const TeamTable::Phase phase = found->second.phase;
      ASSERT_TRUE(phase == TeamTable::Phase::kReady || phase == TeamTable::Phase::kGaveUp);
    }
  }

 private:
  static RetryPolicy policy() {
    RetryPolicy policy;
    policy.max_attempts = kMaxAttempts;
    policy.first_pause = seconds(1);
    return policy;
  }
  static int name_of(const WorkerInfo& worker) { return std::stoi(worker.name); }
  WorkerInfo worker(int name) const {
    return {std::to_string(name), name, Incarnation{alive_[name]}};
  }
  void join(int name, TeamTable::Outputs& outputs) {
    alive_[name] = static_cast<std::uint64_t>(10 * (name + 1) + ++born_[name]);
    table_.on_joined(worker(name), outputs);
    // Once more, as a list and an event may both say it.
    table_.on_joined(worker(name), outputs);
  }

  void check(const TeamTable::Outputs& outputs) {
    for (const TeamEvent& event : outputs.events) {
      std::vector<Kind>& told = told_[event.worker.incarnation.value];
      told.push_back(event.kind);
      const std::vector<std::vector<Kind>> allowed = {{Kind::kJoined},
                                                      {Kind::kJoined, Kind::kReady},
                                                      {Kind::kJoined, Kind::kGaveUp},
                                                      {Kind::kJoined, Kind::kLost},
                                                      {Kind::kJoined, Kind::kReady, Kind::kLost},
                                                      {Kind::kJoined, Kind::kGaveUp, Kind::kLost}};
      ASSERT_NE(std::find(allowed.begin(), allowed.end(), told), allowed.end());
    }
    for (const TeamTable::Outputs::Make& make : outputs.makes) {
      ASSERT_LE(++attempts_[make.worker.incarnation.value], kMaxAttempts);
      under_way_.push_back(make);
    }
    std::size_t ready = 0;
    for (int name = 0; name < kNames; ++name) {
      if (alive_[name] == 0) continue;
      const std::vector<Kind>& told = told_.at(alive_[name]);
      ready += told.back() == Kind::kReady ? 1 : 0;
    }
    ASSERT_EQ(table_.ready(), ready);
  }

  TeamTable table_;
  TeamTable::Time now_;
  std::uint64_t alive_[kNames] = {0, 0};
  int born_[kNames] = {0, 0};
  std::vector<TeamTable::Outputs::Make> under_way_;
  std::map<std::uint64_t, std::vector<Kind>> told_;
  std::map<std::uint64_t, int> attempts_;
};

/// Depth first; a run ends where workers neither come nor go any more.
void explore(const TeamWorld& world, int depth, std::size_t& runs) {
  const std::vector<int> steps = world.steps();
  bool is_quiet = true;
  for (const int step : steps) is_quiet = is_quiet && (step < 30);
  if (is_quiet) world.check_end();
  if (steps.empty() || depth == 0) {
    ++runs;
    return;
  }
  for (const int step : steps) {
    TeamWorld next = world;
    next.take(step);
    if (::testing::Test::HasFatalFailure()) {
      ADD_FAILURE() << "by way of step " << step;
      return;
    }
    explore(next, depth - 1, runs);
  }
}

TEST(TeamTable, EachOrderOfWhatMayHappenToTwoNames) {
  std::size_t runs = 0;
  explore(TeamWorld(), 8, runs);
  EXPECT_GT(runs, 10'000U);
}

TEST(TeamTable, PausesGrowUpToTheLongest) {
  RetryPolicy policy;
  policy.max_attempts = 6;
  policy.first_pause = seconds(1);
  policy.longest_pause = seconds(5);
  policy.multiplier = 2;
  TeamTable table(policy);
  TeamTable::Outputs outputs;
  TeamTable::Time now;
  table.on_joined({"a", 0, Incarnation{7}}, outputs);
  std::vector<long> pauses;
  for (int i = 0; i < 5; ++i) {
    table.on_failed(outputs.makes.back().attempt, "no", now, outputs);
    pauses.push_back(std::chrono::duration_cast<seconds>(table.next_time() - now).count());
    now = table.next_time();
    table.on_time(now, outputs);
  }
  EXPECT_EQ(pauses, (std::vector<long>{1, 2, 4, 5, 5}));
  table.on_failed(outputs.makes.back().attempt, "no", now, outputs);
  EXPECT_EQ(outputs.events.back().kind, Kind::kGaveUp);
  EXPECT_EQ(table.next_time(), TeamTable::Time::max());
}

}  // namespace
}  // namespace sinew::internal
