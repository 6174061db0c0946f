// `tools/bench scale`: what a worker costs when there are many of them on one host, and what a
// reference costs when there are many of those.

#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "sinew/benchmarks/etcd_process.h"
#include "sinew/benchmarks/measure.h"
#include "sinew/benchmarks/noop.h"
#include "sinew/benchmarks/one_thread.h"
#include "sinew/benchmarks/worker_group.h"
#include "sinew/sinew.h"

namespace bench {

/// What the references refer to.
class Value {
 public:
  std::int64_t get() const { return value_; }

 private:
  std::int64_t value_ = 1;
};

/// What this worker was given.
struct Shelf {
  std::mutex mutex;
  std::vector<sinew::RRef<Value>> references;
};
Shelf& shelf() {
  static Shelf shelf;
  return shelf;
}

void hold(std::vector<sinew::RRef<Value>> references) {
  const std::lock_guard<std::mutex> lock(shelf().mutex);
  auto& held = shelf().references;
  held.insert(held.end(), references.begin(), references.end());
}

void drop_all() {
  std::vector<sinew::RRef<Value>> dropped;
  const std::lock_guard<std::mutex> lock(shelf().mutex);
  dropped.swap(shelf().references);
}

}  // namespace bench

SINEW_METHOD(bench::hold, bench::drop_all);
SINEW_SERVICE(bench::Value, ());

namespace {

using sinew::bench::Clock;
using sinew::bench::Command;
using sinew::bench::Options;
using sinew::bench::WorkerGroup;

constexpr std::array<int, 5> kWorkers = {2, 8, 16, 32, 64};
constexpr double kMiB = 1 << 20;
/// Of the workers of which one falls silent.
constexpr std::chrono::seconds kShortLease{4};
constexpr int kReferencesInACall = 1000;

sinew::MethodTable methods() {
  sinew::MethodTable table;
  table.add<&bench::noop>().add<&bench::hold>().add<&bench::drop_all>().serve<bench::Value>();
  return table;
}

std::string figure_of(const std::string& what, int workers, const std::string& unit) {
  return "scale_" + what + "_" + std::to_string(workers) + "_" + unit;
}

std::vector<std::string> known_figures() {
  std::vector<std::string> names;
  for (const int workers : kWorkers) {
    for (const auto& [what, unit] : {std::pair<const char*, const char*>{"init", "s"},
                                     {"init_etcd", "s"},
                                     {"memory_per_worker", "MiB"},
                                     {"connect", "s"},
                                     {"memory_connected", "MiB"},
                                     {"noop_p50", "us"},
                                     {"heartbeat", "B_per_s"},
                                     {"heartbeat", "packets_per_s"},
                                     {"join_known", "s"},
                                     {"kill_known", "s"},
                                     {"silent_known", "s"}}) {
      names.push_back(figure_of(what, workers, unit));
    }
  }
  for (const char* name :
       {"rref_create_us", "rref_share_us", "rref_delete_us", "rref_memory_before_MiB",
        "rref_memory_full_MiB", "rref_memory_after_MiB", "rref_memory_trimmed_MiB"}) {
    names.emplace_back(name);
  }
  return names;
}

double mean_MiB(const std::vector<sinew::bench::WorkerProcess::Answer>& answers) {
  double bytes = 0;
  for (const auto& answer : answers) bytes += static_cast<double>(answer.first);
  return bytes / static_cast<double>(answers.size()) / kMiB;
}

bool wants(const Options& options, int workers,
           std::initializer_list<std::pair<const char*, const char*>> figures) {
  for (const auto& [what, unit] : figures) {
    if (options.wants(figure_of(what, workers, unit))) return true;
  }
  return false;
}

/// All but the heartbeat, with the options that workers have by default.
void measure_workers(const Options& options, int workers, WorkerGroup& group) {
  options.report(figure_of("init", workers, "s"), group.start(true));
  options.report(figure_of("memory_per_worker", workers, "MiB"),
                 mean_MiB(group.ask(Command::kMemory)));
  options.report(figure_of("connect", workers, "s"), group.connect_all());
  options.report(figure_of("memory_connected", workers, "MiB"),
                 mean_MiB(group.ask(Command::kMemory)));
  if (options.wants(figure_of("noop_p50", workers, "us"))) {
    const sinew::Peer last = group.worker().peer(workers - 1);
    const auto latency =
        sinew::bench::measure_latency(options.latency_calls(), [&] { last.call<&bench::noop>(); });
    options.report(figure_of("noop_p50", workers, "us"), latency.p50_us);
  }
  group.shutdown();
}

/// What connected workers send when nobody calls. Over TCP, since the kernel counts nothing for
/// Unix sockets.
void measure_heartbeat(const Options& options, int workers, WorkerGroup& group) {
  group.start(false);
  group.connect_all();
  std::this_thread::sleep_for(std::chrono::seconds(1));  // what follows the calls has been sent
  const Clock::time_point begin = Clock::now();
  const auto before = group.ask(Command::kTcpSent);
  std::this_thread::sleep_for(std::chrono::seconds(options.quick() ? 2 : 10));
  const auto after = group.ask(Command::kTcpSent);
  const double worker_seconds =
      std::chrono::duration<double>(Clock::now() - begin).count() * (workers - 1);
  double bytes = 0;
  double packets = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    bytes += static_cast<double>(after[i].first - before[i].first);
    packets += static_cast<double>(after[i].second - before[i].second);
  }
  options.report(figure_of("heartbeat", workers, "B_per_s"), bytes / worker_seconds);
  options.report(figure_of("heartbeat", workers, "packets_per_s"), packets / worker_seconds);
  group.shutdown();
}

/// Who comes and who goes, in an open job of connected workers.
void measure_changes(const Options& options, int workers, WorkerGroup& group) {
  if (wants(options, workers, {{"join_known", "s"}, {"kill_known", "s"}})) {
    group.start_open_without_last(std::chrono::milliseconds(0));
    group.connect_all();
    options.report(figure_of("join_known", workers, "s"), group.join_last());
    group.connect_all();
    options.report(figure_of("kill_known", workers, "s"), group.lose_last(SIGKILL));
    group.shutdown();
  }
  if (wants(options, workers, {{"silent_known", "s"}})) {
    group.start_open_without_last(kShortLease);
    group.join_last();
    group.connect_all();
    options.report(figure_of("silent_known", workers, "s"), group.lose_last(SIGSTOP));
    group.shutdown();
  }
}

void measure_group(const Options& options, int workers) {
  const bool wants_workers = wants(options, workers,
                                   {{"init", "s"},
                                    {"memory_per_worker", "MiB"},
                                    {"connect", "s"},
                                    {"memory_connected", "MiB"},
                                    {"noop_p50", "us"}});
  const bool wants_heartbeat =
      wants(options, workers, {{"heartbeat", "B_per_s"}, {"heartbeat", "packets_per_s"}});
  const bool wants_changes =
      wants(options, workers, {{"join_known", "s"}, {"kill_known", "s"}, {"silent_known", "s"}});
  const bool wants_etcd = wants(options, workers, {{"init_etcd", "s"}});
  if (!wants_workers && !wants_heartbeat && !wants_changes && !wants_etcd) return;
  std::optional<sinew::bench::EtcdProcess> etcd;
  if (wants_etcd) etcd.emplace();
  WorkerGroup group(workers, methods());
  if (wants_workers) measure_workers(options, workers, group);
  if (wants_etcd) {
    options.report(figure_of("init_etcd", workers, "s"), group.start_at_etcd(etcd->port()));
    group.shutdown();
  }
  if (wants_heartbeat) measure_heartbeat(options, workers, group);
  if (wants_changes) measure_changes(options, workers, group);
}

template <class Condition>
void wait_until(const char* what, Condition&& condition) {
  const Clock::time_point deadline = Clock::now() + std::chrono::minutes(2);
  while (!condition()) {
    if (Clock::now() > deadline) throw std::runtime_error(std::string("never happened: ") + what);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// Rank 0 makes values at rank 1, shares the references with rank 2, and both give them up.
class ReferenceRun {
 public:
  explicit ReferenceRun(const Options& options)
      : options_(options), count_(options.quick() ? 2000 : 100000), group_(3, methods()) {
    group_.start(true);
    group_.connect_all();
  }

  void measure() {
    options_.report("rref_memory_before_MiB", memory_MiB());
    timed("rref_create_us", [this] { create(); });
    timed("rref_share_us", [this] { share(); });
    options_.report("rref_memory_full_MiB", memory_MiB());
    timed("rref_delete_us", [this] { give_up(); });
    // For a lease the owner remembers who has given up what.
    std::this_thread::sleep_for(sinew::WorkerOptions().lease + std::chrono::seconds(2));
    options_.report("rref_memory_after_MiB", memory_MiB());
    options_.report("rref_memory_trimmed_MiB", memory_MiB(sinew::bench::Malloc::kTrimmed));
    group_.shutdown();
  }

 private:
  template <class Step>
  void timed(const char* figure, Step&& step) {
    const Clock::time_point begin = Clock::now();
    step();
    const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
    options_.report(figure, took.count() / count_);
  }

  void create() {
    const sinew::Peer owner = group_.worker().peer(1);
    while (static_cast<int>(references_.size()) < count_) {
      const std::size_t begin = references_.size();
      for (int i = 0; i < kReferencesInACall; ++i) {
        references_.push_back(owner.remote<bench::Value>());
      }
      for (std::size_t i = begin; i < references_.size(); ++i) references_[i].created().wait();
    }
  }

  void share() {
    const sinew::Peer third = group_.worker().peer(2);
    for (auto begin = references_.begin(); begin != references_.end();
         begin += kReferencesInACall) {
      third.call<&bench::hold>(
          std::vector<sinew::RRef<bench::Value>>(begin, begin + kReferencesInACall));
    }
    wait_until("the owner knows of all who hold references",
               [this] { return group_.worker().counters()["rref.pending_children"] == 0; });
  }

  void give_up() {
    references_.clear();
    group_.worker().peer(2).call<&bench::drop_all>();
    wait_until("the owner has deleted all values",
               [this] { return group_.ask(1, Command::kOwnedValues).first == 0; });
  }

  /// Of the three together.
  double memory_MiB(sinew::bench::Malloc malloc = sinew::bench::Malloc::kAsItIs) const {
    const bool trimmed = malloc == sinew::bench::Malloc::kTrimmed;
    double bytes = static_cast<double>(sinew::bench::private_bytes(malloc));
    for (const auto& answer : group_.ask(trimmed ? Command::kTrimmedMemory : Command::kMemory)) {
      bytes += static_cast<double>(answer.first);
    }
    return bytes / kMiB;
  }

  const Options& options_;
  const int count_;
  WorkerGroup group_;
  std::vector<sinew::RRef<bench::Value>> references_;
};

int run(int argc, char** argv) {
  if (sinew::bench::is_worker_process(argc, argv)) {
    return sinew::bench::run_worker_process(methods());
  }
  const Options options = sinew::bench::parse_options(argc, argv, known_figures());
  sinew::bench::compute_on_one_thread();
  if (options.wants_any({"rref_create_us", "rref_share_us", "rref_delete_us",
                         "rref_memory_before_MiB", "rref_memory_full_MiB", "rref_memory_after_MiB",
                         "rref_memory_trimmed_MiB"})) {
    ReferenceRun(options).measure();
  }
  for (const int workers : kWorkers) measure_group(options, workers);
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return sinew::bench::run_main("bench_scale", &run, argc, argv); }
