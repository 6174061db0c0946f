// Sinew's own side of `tools/bench waiting`: whether threads that poll before they sleep take cores
// from those who need them. Each figure is also taken with workers that always sleep.

#include <sys/prctl.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "ATen/Parallel.h"
#include "sinew/benchmarks/apart.h"
#include "sinew/benchmarks/measure.h"
#include "sinew/benchmarks/noop.h"
#include "sinew/benchmarks/server_process.h"
#include "sinew/sinew.h"

namespace bench {

void pass(std::int64_t workers);

}  // namespace bench

SINEW_METHOD(bench::pass);

namespace bench {

std::atomic<std::int64_t> rounds_of_token{0};

/// Hands the token on, for ever.
void pass(std::int64_t workers) {
  const sinew::Worker self = sinew::current_worker();
  if (self.rank() == 0) ++rounds_of_token;
  self.peer((self.rank() + 1) % static_cast<int>(workers)).async<&bench::pass>(workers);
}

/// Computes for a while; how many times the same piece.
std::int64_t compute(std::int64_t milliseconds) {
  std::int64_t pieces = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  for (; std::chrono::steady_clock::now() < end; ++pieces) {
    volatile double sum = 0;
    for (int i = 1; i < 20000; ++i) sum = sum + 1.0 / i;
  }
  return pieces;
}

/// Calls a worker for a while, one call at a time; how many.
std::int64_t call_for(std::int64_t milliseconds, std::int64_t rank) {
  const sinew::Peer peer = sinew::current_worker().peer(static_cast<int>(rank));
  std::int64_t calls = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  for (; std::chrono::steady_clock::now() < end; ++calls) peer.call<&bench::noop>();
  return calls;
}

/// Calls a worker once in a millisecond for a while; how many calls.
std::int64_t call_now_and_then(std::int64_t milliseconds, std::int64_t rank) {
  const sinew::Peer peer = sinew::current_worker().peer(static_cast<int>(rank));
  std::int64_t calls = 0;
  auto next = std::chrono::steady_clock::now();
  const auto end = next + std::chrono::milliseconds(milliseconds);
  for (; next < end; ++calls) {
    next += std::chrono::milliseconds(1);
    std::this_thread::sleep_until(next);
    peer.call<&bench::noop>();
  }
  return calls;
}

/// What a training process fetches for a step.
at::Tensor parameters() {
  static const at::Tensor tensor = at::ones({64, 64});
  return tensor;
}

}  // namespace bench

SINEW_METHOD(bench::compute, bench::call_for, bench::call_now_and_then, bench::parameters);

namespace {

using sinew::bench::Clock;
using sinew::bench::Options;
using std::chrono::milliseconds;
using Values = std::vector<double>;

constexpr int kRing = 8;
constexpr int kCallers = 16;
constexpr int kRates[] = {10, 100, 1000, 10000};

sinew::Worker start_worker(int rank, int workers, std::uint16_t port) {
  sinew::WorkerOptions options;
  options.name = "worker" + std::to_string(rank);
  options.methods.add<&bench::noop>()
      .add<&bench::pass>()
      .add<&bench::compute>()
      .add<&bench::call_for>()
      .add<&bench::call_now_and_then>()
      .add<&bench::parameters>();
  options.init_method = "tcp://127.0.0.1:" + std::to_string(port);
  options.rank = rank;
  options.world_size = workers;
  return sinew::init_rpc(std::move(options));
}

/// A job of so many processes. Worker 0 is in this one.
class Job {
 public:
  explicit Job(int workers) {
    const std::uint16_t port = sinew::bench::free_loopback_port();
    for (int rank = 1; rank < workers; ++rank) {
      others_.push_back(std::make_unique<sinew::bench::ServerProcess>(
          [&](const sinew::bench::ServerProcess::ReportPort& report) {
            report(port);
            const sinew::Worker worker = start_worker(rank, workers, port);
            for (;;) pause();  // The process of worker 0 kills this one.
          }));
    }
    self_ = start_worker(0, workers, port);
  }

  sinew::Peer peer(int rank) const { return self_.peer(rank); }
  /// CPU time of all processes so far.
  double cpu_s() const {
    double sum = cpu_of(getpid());
    for (const auto& each : others_) sum += cpu_of(each->process());
    return sum;
  }

 private:
  static double cpu_of(pid_t process) {
    clockid_t clock{};
    timespec time{};
    if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &time) != 0) {
      throw std::runtime_error("cannot read the CPU time of a process");
    }
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

  std::vector<std::unique_ptr<sinew::bench::ServerProcess>> others_;
  sinew::Worker self_;
};

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

/// Hops of a token in a ring, one of whose workers computes; pieces that that one computes.
Values ring(const Options& options) {
  const Job job(kRing);
  const std::int64_t time = (options.rate_warm_up() + options.rate_window()).count();
  const auto computed = job.peer(kRing / 2).async<&bench::compute>(time);
  job.peer(0).call<&bench::pass>(kRing);
  std::this_thread::sleep_for(options.rate_warm_up());
  const std::int64_t before = bench::rounds_of_token;
  const Clock::time_point begun = Clock::now();
  const std::int64_t pieces = computed.wait();
  const double hops = static_cast<double>(bench::rounds_of_token - before) * kRing;
  return {hops / seconds(Clock::now() - begun),
          1e3 * static_cast<double>(pieces) / static_cast<double>(time)};
}

/// Calls of many workers to one.
Values many_callers(const Options& options) {
  const Job job(kCallers + 1);
  const auto calls_in = [&](milliseconds time) {
    std::vector<sinew::Future<std::int64_t>> counts;
    for (int rank = 1; rank <= kCallers; ++rank) {
      counts.push_back(job.peer(rank).async<&bench::call_for>(time.count(), 0));
    }
    std::int64_t calls = 0;
    for (const auto& each : counts) calls += each.wait();
    return calls;
  };
  calls_in(options.rate_warm_up());
  return {static_cast<double>(calls_in(options.rate_window())) / seconds(options.rate_window())};
}

/// Steps of a training process with as many compute threads as cores, each with parameters that it
/// fetches; calls that the worker which has these serves meanwhile, 1,000 per second if it can.
Values training(const Options& options) {
  const Job job(3);
  at::set_num_threads(static_cast<int>(std::thread::hardware_concurrency()));
  const at::Tensor batch = at::ones({512, 512});
  const auto steps_in = [&](milliseconds time) {
    const auto end = Clock::now() + time;
    std::int64_t steps = 0;
    for (; Clock::now() < end; ++steps) {
      const at::Tensor fetched = job.peer(1).call<&bench::parameters>();
      at::tanh(at::matmul(batch, batch)).sum().add_(fetched.sum());
    }
    return static_cast<double>(steps);
  };
  steps_in(options.rate_warm_up());
  // Threads that compute and threads that serve fall into and out of step with each other.
  const milliseconds window = 3 * options.rate_window();
  const Clock::time_point begun = Clock::now();
  const auto calls = job.peer(2).async<&bench::call_now_and_then>(window.count(), 1);
  const double steps = steps_in(window) / seconds(Clock::now() - begun);
  const auto served = static_cast<double>(calls.wait());
  return {steps, served / seconds(Clock::now() - begun)};
}

/// CPU time of both processes for a million calls that are made one by one, at a given rate.
Values cpu_at(const Options& options, int rate) {
  const Job job(2);
  // Sleeps end when they should.
  prctl(PR_SET_TIMERSLACK, 1);
  const sinew::Peer server = job.peer(1);
  const std::int64_t warm_up = rate / 5 + 1;
  const std::int64_t calls = options.quick() ? rate / 5 + 2 : rate * 4L;
  double before = 0;
  Clock::time_point next = Clock::now();
  for (std::int64_t i = 0; i < warm_up + calls; ++i) {
    if (i == warm_up) before = job.cpu_s();
    next += std::chrono::nanoseconds(std::chrono::seconds(1)) / rate;
    std::this_thread::sleep_until(next);
    server.call<&bench::noop>();
  }
  return {1e6 * (job.cpu_s() - before) / static_cast<double>(calls)};
}

struct Scene {
  /// A figure is `<name>_per_s` or so, and `<name>_asleep_per_s` with workers that always sleep.
  std::vector<std::pair<std::string, std::string>> figures;
  std::function<Values(const Options&)> measure;
  bool on_half_a_core = false;
};

std::vector<Scene> all_scenes() {
  std::vector<Scene> scenes = {
      {{{"ring8_hops", "_per_s"}, {"ring8_computed", "_per_s"}}, &ring},
      {{{"callers16_calls", "_per_s"}}, &many_callers},
      {{{"training_steps", "_per_s"}, {"training_served", "_per_s"}}, &training},
      {{{"half_core_steps", "_per_s"}, {"half_core_served", "_per_s"}}, &training, true},
  };
  for (const int rate : kRates) {
    scenes.push_back({{{"cpu_at_" + std::to_string(rate), "_s_per_million"}},
                      [rate](const Options& options) { return cpu_at(options, rate); }});
  }
  return scenes;
}

void measure(const Options& options, const Scene& scene, bool asleep) {
  std::vector<std::string> names;
  bool wanted = false;
  for (const auto& [name, unit] : scene.figures) {
    names.push_back(name + (asleep ? "_asleep" : "") + unit);
    wanted = wanted || options.wants(names.back());
  }
  if (!wanted) return;
  std::unique_ptr<sinew::bench::HalfCore> half_core;
  if (scene.on_half_a_core) half_core = std::make_unique<sinew::bench::HalfCore>();
  const Values values = sinew::bench::measure_apart([&] {
    if (half_core != nullptr) half_core->enter();
    if (asleep) setenv("SINEW_MAX_POLL_US", "0", 1);
    return scene.measure(options);
  });
  for (std::size_t i = 0; i < names.size(); ++i) options.report(names[i], values.at(i));
}

int run(int argc, char** argv) {
  const std::vector<Scene> scenes = all_scenes();
  std::vector<std::string> known;
  for (const Scene& scene : scenes) {
    for (const auto& [name, unit] : scene.figures) {
      known.push_back(name + unit);
      known.push_back(name + "_asleep" + unit);
    }
  }
  const Options options = sinew::bench::parse_options(argc, argv, known);
  for (const Scene& scene : scenes) {
    for (const bool asleep : {false, true}) measure(options, scene, asleep);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return sinew::bench::run_main("bench_waiting", &run, argc, argv);
}
