#include "sinew/tests/registry/support/registry_simulation.h"

#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "sinew/tests/registry/support/registry_explorer.h"

namespace sinew::internal::registry {
namespace {

constexpr Time kMoment = milliseconds(20);
constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

class Simulation {
 public:
  Simulation(const Trouble& trouble, std::uint64_t seed, bool tells)
      : trouble_(trouble), draw_(seed), world_(trouble.setup) {
    world_.tell(tells);
    for (int node = world_.nodes() - 1; node >= 0; --node) {
      world_.start_at(node, milliseconds(below(1500)));
    }
  }

  Simulated run() {
    Simulated result;
    while (world_.now() < trouble_.lasts && world_.violation().empty()) {
      world_.run_until(world_.now() + kMoment);
      if (world_.now() > seconds(1)) strike();
    }
    result.violation = world_.violation().empty() ? finish(world_) : world_.violation();
    result.counts = world_.counts();
    result.faults = faults_;
    return result;
  }

 private:
  int below(int end) { return static_cast<int>(draw_() % static_cast<std::uint64_t>(end)); }
  bool happens(double in_a_second) {
    return static_cast<double>(draw_() % 1000000) <
           in_a_second * 1e6 * (kMoment / milliseconds(1)) / 1000;
  }
  int node() {
    const bool is_first = trouble_.strikes_registrar && below(4) == 0;
    const int host = trouble_.setup.is_alone ? trouble_.setup.workers : 0;
    if (is_first || !trouble_.strikes_workers) return host;
    const int other = below(trouble_.setup.workers - trouble_.setup.liars);
    return !trouble_.strikes_registrar && other == host ? 1 : other;
  }
  Time while_() {
    return below(2) == 0 ? milliseconds(below(3000)) : kLease + milliseconds(below(6000));
  }

  void strike() {
    const int n = node();
    const bool is_worker = n < trouble_.setup.workers;
    if (happens(trouble_.kills) && world_.is_alive(n)) {
      ++faults_;
      world_.kill(n);
      world_.start_at(n, world_.now() + while_());
    }
    if (happens(trouble_.stops) && world_.is_alive(n)) {
      ++faults_;
      // Liars must not outnumber those who come back in time.
      world_.stop(n, trouble_.lies > 0 ? milliseconds(below(400)) : while_());
    }
    if (happens(trouble_.cuts)) {
      ++faults_;
      const int other = below(world_.nodes());
      const Time how_long = while_();
      if (other != n) world_.cut(n, other, how_long);
      if (other != n && below(2) == 0) world_.cut(other, n, how_long);
    }
    if (happens(trouble_.losses))
      below(2) == 0 ? world_.lose_next() : world_.delay_next(milliseconds(below(5000)));
    if (happens(trouble_.leaves) && is_worker) world_.leave(n);
    if (world_.now() > seconds(6) && happens(trouble_.lies)) lie();
  }

  // --- Lies. Whoever tells them knows everybody's incarnation, and all numbers. ---

  std::uint64_t number() {
    constexpr std::uint64_t kEdges[] = {
        0, 1, 2, 1000, kLastEpoch - 1, kLastEpoch, kLastEpoch + 1, kMost / 2, kMost - 1, kMost};
    return below(3) == 0 ? draw_() : kEdges[below(10)];
  }
  Incarnation anybody() {
    const int n = below(world_.nodes() + 2);
    if (n >= world_.nodes()) return n == world_.nodes() ? liar_ : Incarnation{number()};
    return world_.incarnation(n);
  }
  WorkerInfo somebody() {
    return {absl::StrCat("w", below(trouble_.setup.workers)), below(trouble_.setup.workers + 2) - 1,
            anybody()};
  }
  Version version() { return {number(), below(2) == 0 ? world_.registrar() : anybody(), number()}; }
  std::vector<WorkerInfo> crowd() {
    std::vector<WorkerInfo> all;
    for (int i = below(2 * trouble_.setup.workers); i > 0; --i) all.push_back(somebody());
    return all;
  }
  JobInstance instance() {
    // That of the job is known to all.
    const RegistryClient* const other = world_.client(0);
    if (other != nullptr && below(2) == 0) return other->instance();
    return {below(4) == 0 ? number() : 0, number(), number()};
  }
  Record self() {
    Record record{somebody(), "lies"};
    if (below(8) > 0) record.worker.incarnation = liar_;
    // Whoever takes a name that nobody has has it.
    if (!trouble_.claims) record.worker.name = absl::StrCat("liar", below(3));
    if (!trouble_.claims) record.worker.rank = trouble_.setup.workers + below(5);
    return record;
  }
  std::vector<std::string> names() {
    std::set<std::string> names;
    for (const WorkerInfo& each : crowd()) names.insert(each.name);
    std::vector<std::string> list(names.begin(), names.end());
    if (below(4) == 0) list.emplace_back("a,b");
    return list;
  }

  Request request() {
    const std::uint64_t id = below(2) == 0 ? number() : static_cast<std::uint64_t>(below(4));
    switch (below(7)) {
      case 0:
        return Join{self(), "job", below(4) == 0 ? below(5) - 1 : trouble_.setup.world_size};
      case 1:
      case 2:
        return Return{self(),    "job",  trouble_.setup.world_size, instance(), version(),
                      version(), crowd()};
      case 3:
        return Renew{version()};
      case 4:
        return Report{anybody(), std::string(static_cast<std::size_t>(below(3000)), 'x')};
      case 5:
        return Enter{id, absl::StrCat("x", below(5)), names(), "lies"};
      default:
        return below(20) == 0 ? Request(Leave{}) : Request(Cancel{id});
    }
  }

  Answer answer() {
    switch (below(8)) {
      case 0: {
        List list{version(), instance(), {}, below(2) == 0};
        for (const WorkerInfo& each : crowd()) list.members.push_back({each, ""});
        for (int n = 0; n < trouble_.setup.workers; ++n)
          list.members.push_back({{absl::StrCat("w", n), n, world_.incarnation(n)}, ""});
        return list;
      }
      case 1:
        return Update{number(), version(), {{{somebody(), ""}, Gone::kSilent, "lies"}}};
      case 2:
        return Renewed{version()};
      case 3:
        return Probe{};
      case 4:
        return ComeBack{};
      case 5:
        return Refused{absl::AlreadyExistsError("lies")};
      case 6:
        return Finished{
            static_cast<std::uint64_t>(below(9)), absl::InternalError("lies"), {"lies"}};
      default:
        return Out{Gone::kSilent, "lies"};
    }
  }

  void lie() {
    ++faults_;
    const int liars = trouble_.setup.liars;
    const int which = below(liars + (trouble_.setup.has_guest ? 1 : 0));
    liar_ =
        which == liars ? world_.guest() : world_.incarnation(trouble_.setup.workers - 1 - which);
    if (liar_.value == 0) return;
    if (below(3) > 0) return world_.lie(liar_, number(), request());
    world_.lie_to(below(trouble_.setup.workers - liars), liar_, number(), answer());
  }

  const Trouble trouble_;
  std::mt19937_64 draw_;
  World world_;
  Incarnation liar_;
  int faults_ = 0;
};

}  // namespace

Simulated simulate(const Trouble& trouble, std::uint64_t seed, bool tells) {
  return Simulation(trouble, seed, tells).run();
}

}  // namespace sinew::internal::registry
