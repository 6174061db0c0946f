#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "sinew/rpc/membership/registry/registry_table.h"

namespace sinew::internal::registry {

/// A table that is told things by hand. Workers have their number as incarnation, and its name.
class TableTest : public ::testing::Test {
 public:
  static constexpr std::uint64_t kRegistrar = 1000;
  static constexpr Time kLease = std::chrono::seconds(4);
  static constexpr Time kTick = std::chrono::milliseconds(100);

  static Options options(std::int32_t world_size = 0, std::uint64_t registrar = kRegistrar) {
    Options options;
    options.registrar = {registrar};
    options.job = "job";
    options.world_size = world_size;
    options.instance = {0, registrar, 1};
    options.lease = kLease;
    options.tick = kTick;
    return options;
  }

  static WorkerInfo worker(std::uint64_t who, std::int32_t rank = -1) {
    return {"w" + std::to_string(who), rank, {who}};
  }
  static JobInstance instance() { return {0, 1, 1}; }

  Effects ask(std::uint64_t who, Request request, std::uint64_t echo = 0) {
    last = table.handle({who}, echo, request, now);
    return last;
  }
  Effects join(std::uint64_t who, std::int32_t rank = -1, std::string name = "") {
    // The first one asks for rank 0, which nobody has otherwise.
    if (who == 1 && world_size == 0 && rank < 0) rank = 0;
    Join join{{worker(who, rank), "here"}, "job", world_size};
    if (!name.empty()) join.self.worker.name = std::move(name);
    return ask(who, join);
  }
  Effects come_back(WorkerInfo self, std::vector<WorkerInfo> known, std::uint64_t joined = 1,
                    std::uint64_t epoch = 1) {
    Return back{{self, "here"},   "job",           world_size, instance(), {epoch, {7}, 5},
                {1, {7}, joined}, std::move(known)};
    return ask(self.incarnation.value, back);
  }
  /// All that time brings, with beats of these.
  void pass(Time how_long, const std::vector<std::uint64_t>& alive = {}) {
    const Time end = now + how_long;
    while (now < end) {
      now += kTick;
      for (const std::uint64_t who : alive)
        table.handle({who}, 0, Renew{{1, {kRegistrar}, 0}}, now);
      const Effects effects = table.tick(now);
      ticked.insert(ticked.end(), effects.begin(), effects.end());
    }
  }
  void begin(Options with) {
    world_size = with.world_size;
    table = RegistryTable(with, now);
  }
  /// Past the time in which nobody new is admitted.
  void settle() { pass(std::chrono::milliseconds(1100)); }

  bool is_in(std::uint64_t who) const { return table.roster().find(Incarnation{who}) != nullptr; }
  std::int32_t rank_of(std::uint64_t who) const {
    return table.roster().find(Incarnation{who})->rank;
  }

  /// The last of its kind that was sent to somebody; null: none.
  template <class Kind>
  static const Kind* sent(const Effects& effects, std::uint64_t to) {
    const Kind* found = nullptr;
    for (const Send& send : effects) {
      const Kind* answer = std::get_if<Kind>(&send.answer);
      if (answer != nullptr && std::count(send.to.begin(), send.to.end(), Incarnation{to}) > 0)
        found = answer;
    }
    return found;
  }

  Time now{0};
  std::int32_t world_size = 0;
  RegistryTable table{options(), Time(0)};
  Effects last;
  Effects ticked;
};

}  // namespace sinew::internal::registry
