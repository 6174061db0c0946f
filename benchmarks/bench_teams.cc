// Sinew's own side of `tools/bench teams`: calls of an object that is called by one at a time, and
// of all members of a team, each a process on this host.

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "sinew/benchmarks/measure.h"
#include "sinew/benchmarks/worker_processes.h"
#include "sinew/rpc/rpc.h"
#include "sinew/rref/team.h"

namespace bench {

constexpr int kMembers = 8;
constexpr std::size_t kArgumentBytes = 10'000;

class Counter {
 public:
  std::int64_t add(const std::string& bytes) {
    return count_ += static_cast<std::int64_t>(bytes.size());
  }

 private:
  std::int64_t count_ = 0;
};

}  // namespace bench

SINEW_SERVICE(bench::Counter, (), add);

namespace {

using sinew::bench::measure_latency;
using sinew::bench::Options;

// The last member takes turns, and it alone: its order of calls costs the others nothing.
const std::string kTakesTurns = "member" + std::to_string(bench::kMembers);

void measure_method(const Options& options, const char* figure, const sinew::Peer& member) {
  if (!options.wants(figure)) return;
  const auto counter = member.remote<bench::Counter>();
  const std::string bytes(8, 'x');
  const auto latency =
      measure_latency(options.latency_calls(), [&] { counter.call<&bench::Counter::add>(bytes); });
  options.report(figure, latency.p50_us);
}

int run(int argc, char** argv) {
  const Options options = sinew::bench::parse_options(
      argc, argv, {"turn_method_p50_us", "plain_method_p50_us", "call_all8_p50_us"});
  const sinew::bench::WorkerProcesses processes(
      sinew::bench::numbered_names("lead", "member", bench::kMembers),
      [](const sinew::Worker& worker) {
        sinew::ShutdownOptions with_the_lead;
        with_the_lead.timeout = std::chrono::hours(1);
        worker.shutdown(with_the_lead);
      },
      [](sinew::WorkerOptions& member) {
        const bool takes_turns = member.name == kTakesTurns;
        member.methods = sinew::serve<bench::Counter>(takes_turns ? sinew::one_at_a_time()
                                                                  : sinew::MethodRules());
        member.num_threads = 1;
      });
  const sinew::Worker worker = sinew::init_rpc(processes.place(0));
  measure_method(options, "turn_method_p50_us", worker.peer(kTakesTurns));
  measure_method(options, "plain_method_p50_us", worker.peer("member1"));
  if (options.wants("call_all8_p50_us")) {
    const auto team = worker.team<bench::Counter>("member*");
    team.wait_for(bench::kMembers);
    const std::string bytes(bench::kArgumentBytes, 'x');
    const auto latency = measure_latency(
        options.latency_calls(), [&] { team.call_all<&bench::Counter::add>(bytes).values(); });
    options.report("call_all8_p50_us", latency.p50_us);
  }
  worker.shutdown();
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return sinew::bench::run_main("bench_teams", &run, argc, argv); }
