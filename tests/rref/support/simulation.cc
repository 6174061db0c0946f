#include "sinew/tests/rref/support/simulation.h"

#include "sinew/tests/rref/support/simulation_cluster.h"
#include "sinew/tests/rref/support/simulation_programs.h"

namespace sinew::internal::ledger {

namespace {

using std::chrono::seconds;

/// What happens in one job, and when.
class Simulation {
 public:
  explicit Simulation(std::uint64_t seed) : cluster_(seed), programs_(cluster_) {
    SimulationRandom& random = cluster_.random();
    plan_faults();
    const std::size_t steps = 20 + random.below(60);
    for (std::size_t i = 0; i < steps; ++i) {
      cluster_.at(random.between(Time(0), kProgramEnds), [this] { programs_.step(); });
    }
    cluster_.at(kProgramEnds, [this] { wind_down(); });
  }

  SimulationReport run() {
    cluster_.run_until(kAllQuiet);
    if (cluster_.report().violation.empty()) cluster_.judge_the_end();
    return cluster_.report();
  }

 private:
  static constexpr Time kProgramEnds = SimulatedCluster::kProgramEnds;
  static constexpr Time kAllQuiet = SimulatedCluster::kAllQuiet;

  void plan_faults() {
    SimulationRandom& random = cluster_.random();
    const std::size_t partitions = random.below(3);
    for (std::size_t i = 0; i < partitions; ++i) {
      cluster_.at(random.between(seconds(1), kProgramEnds), [this] { cluster_.partition(); });
    }
    const std::size_t crashes = random.below(3);
    for (std::size_t i = 0; i < crashes; ++i) {
      cluster_.at(random.between(seconds(1), kProgramEnds), [this] { cluster_.crash(); });
    }
    if (random.chance(25)) {
      cluster_.at(random.between(seconds(10), kProgramEnds), [this] { cluster_.begin_leave(); });
    }
  }

  /// The network is whole again and programs end: all handles go.
  void wind_down() {
    cluster_.heal();
    for (int number = 0; number < cluster_.nodes(); ++number) {
      SimulatedCluster::Node& node = cluster_.node(number);
      if (!node.alive) continue;
      cluster_.check_leases(number);
      if (cluster_.random().chance(50)) {
        cluster_.perform(number, node.ledger.release_all_users(cluster_.now()));
      }
      cluster_.drop_handles(number);
    }
    if (cluster_.now() < kAllQuiet - seconds(30)) {
      cluster_.at(cluster_.now() + seconds(10), [this] { wind_down(); });
    }
  }

  SimulatedCluster cluster_;
  SimulatedPrograms programs_;
};

}  // namespace

void SimulationReport::add(const SimulationReport& other) {
  events += other.events;
  created += other.created;
  received += other.received;
  uses += other.uses;
  forgeries += other.forgeries;
  crashes += other.crashes;
  fences += other.fences;
  left += other.left;
}

SimulationReport simulate(std::uint64_t seed) { return Simulation(seed).run(); }

}  // namespace sinew::internal::ledger
