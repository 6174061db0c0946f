#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "ATen/ATen.h"
#include "absl/strings/str_join.h"
#include "sinew/benchmarks/group_figures.h"
#include "sinew/benchmarks/measure.h"
#include "sinew/benchmarks/mpi_job.h"
#include "sinew/benchmarks/one_thread.h"
#include "sinew/examples/basics/ring_all_reduce.h"
#include "sinew/examples/image_classifier/models/resnet.h"
#include "sinew/groups/process_group.h"
#include "sinew/launch/spawn.h"
#include "sinew/parallel/distributed_data_parallel.h"
#include "torch/nn/functional/loss.h"
#include "torch/optim/sgd.h"

namespace bench {
namespace {

using sinew::ProcessGroup;
using sinew::bench::Latency;
using sinew::bench::Options;

using Figures = std::vector<std::string>;

constexpr std::int64_t kBatch = 8;
constexpr std::int64_t kClasses = 10;

/// Times `reduce()`, which all ranks call equally often. Rank 0 reports what it saw.
template <class Reduce>
void report_p50_us(const Options& options, const std::string& figure, int times,
                   const ProcessGroup& group, Reduce&& reduce) {
  group.barrier();
  const Latency latency = sinew::bench::measure_latency(times, reduce);
  if (group.rank() == 0) options.report(figure, latency.p50_us);
}

at::Tensor zeros_of(std::int64_t bytes) {
  return at::zeros({bytes / static_cast<std::int64_t>(sizeof(float))});
}

void measure_all_reduce(int, const Figures& figures, bool quick) {
  sinew::bench::compute_on_one_thread();
  const Options options(figures, quick);
  const ProcessGroup group = sinew::init_process_group();
  for (const std::int64_t bytes : sinew::bench::kReducedBytes) {
    const std::string figure = sinew::bench::all_reduce_figure(bytes, group.size());
    if (!options.wants(figure)) continue;
    const at::Tensor tensor = zeros_of(bytes);
    report_p50_us(options, figure, sinew::bench::timed_operations(options, bytes), group,
                  [&] { group.all_reduce(tensor); });
  }
}

void measure_ring(int, const Figures& figures, bool quick) {
  sinew::bench::compute_on_one_thread();
  const Options options(figures, quick);
  const ProcessGroup group = sinew::init_process_group();
  for (const std::int64_t bytes : sinew::bench::kReducedBytes) {
    const std::string figure = sinew::bench::ring_figure(bytes);
    if (!options.wants(figure)) continue;
    const at::Tensor tensor = zeros_of(bytes);
    report_p50_us(options, figure, sinew::bench::timed_operations(options, bytes), group,
                  [&] { basics::ring_all_reduce(tensor, group); });
  }
}

void measure_ddp(int, const Figures& figures, bool quick) {
  sinew::bench::compute_on_one_thread();
  const Options options(figures, quick);
  const ProcessGroup group = sinew::init_process_group();
  image_classifier::ResNetOptions shape;
  shape.stem = image_classifier::Stem::kCifar;
  shape.classes = kClasses;
  sinew::parallel::DistributedDataParallel model(std::make_shared<image_classifier::ResNet>(shape),
                                                 group);
  torch::optim::SGD optimizer(model.module()->parameters(),
                              torch::optim::SGDOptions(0.01).momentum(0.9));
  const at::Tensor images = at::randn({kBatch, 3, 32, 32});
  const at::Tensor labels = at::randint(kClasses, {kBatch}, at::kLong);
  const auto step = [&] {
    optimizer.zero_grad();
    torch::nn::functional::cross_entropy(model.forward(images), labels).backward();
    optimizer.step();
  };
  step();  // the reducer orders its buckets anew after the first pass
  const Latency latency = sinew::bench::measure_latency(sinew::bench::timed_steps(options), step);
  if (group.rank() == 0) options.report(sinew::bench::kDdpFigure, latency.p50_us / 1000);
}

/// In each process that mpirun has started.
void measure_mpi(const Options& options) {
  sinew::bench::compute_on_one_thread();
  sinew::GroupOptions over_mpi;
  over_mpi.backend = "mpi";
  const ProcessGroup group = sinew::init_process_group(over_mpi);
  for (const std::int64_t bytes : sinew::bench::kReducedBytes) {
    const std::string figure = sinew::bench::mpi_figure(bytes);
    if (!options.wants(figure)) continue;
    const at::Tensor tensor = zeros_of(bytes);
    report_p50_us(options, figure, sinew::bench::timed_mpi_operations(options, bytes), group,
                  [&] { group.all_reduce(tensor); });
  }
}

/// Runs this program by mpirun.
void run_mpi_job(const std::vector<std::string>& arguments) {
  const pid_t job = fork();
  if (job < 0) throw std::system_error(errno, std::generic_category(), "cannot fork");
  if (job == 0) {
    try {
      sinew::bench::become_mpi_job(sinew::bench::kMpiRanks, arguments);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "bench_groups: %s\n", error.what());
      _exit(1);
    }
  }
  int status = 0;
  waitpid(job, &status, 0);
  if (status != 0) throw std::runtime_error("the MPI job has failed");
}

void do_nothing(int) {}

void measure_spawn(const Options& options) {
  const Latency latency = sinew::bench::measure_latency(sinew::bench::timed_spawns(options), [] {
    sinew::spawn(&do_nothing, sinew::bench::kSpawned);
  });
  options.report(sinew::bench::kSpawnFigure, latency.p50_us / 1000);
}

/// Those of `known` that were asked for.
Figures wanted(const Options& options, const Figures& known) {
  Figures figures;
  for (const std::string& figure : known) {
    if (options.wants(figure)) figures.push_back(figure);
  }
  return figures;
}

Figures all_reduce_figures(int ranks) {
  Figures figures;
  for (const std::int64_t bytes : sinew::bench::kReducedBytes) {
    figures.push_back(sinew::bench::all_reduce_figure(bytes, ranks));
  }
  return figures;
}

Figures ring_figures() {
  Figures figures;
  for (const std::int64_t bytes : sinew::bench::kReducedBytes) {
    figures.push_back(sinew::bench::ring_figure(bytes));
  }
  return figures;
}

Figures all_figures() {
  Figures all = ring_figures();
  for (const int ranks : sinew::bench::kGroupRanks) {
    const Figures of_ranks = all_reduce_figures(ranks);
    all.insert(all.end(), of_ranks.begin(), of_ranks.end());
  }
  const Figures over_mpi = sinew::bench::mpi_figures();
  all.insert(all.end(), over_mpi.begin(), over_mpi.end());
  all.insert(all.end(), {sinew::bench::kDdpFigure, sinew::bench::kSpawnFigure});
  return all;
}

void run_ranks(void (*measure)(int, const Figures&, bool), int ranks, const Options& options,
               const Figures& figures) {
  if (figures.empty()) return;
  sinew::spawn(measure, ranks, sinew::SpawnOptions(), figures, options.quick());
}

int run(int argc, char** argv) {
  const Options options = sinew::bench::parse_options(argc, argv, all_figures());
  if (sinew::bench::is_mpi_rank()) {
    measure_mpi(options);
    return 0;
  }
  for (const int ranks : sinew::bench::kGroupRanks) {
    run_ranks(&measure_all_reduce, ranks, options, wanted(options, all_reduce_figures(ranks)));
  }
  run_ranks(&measure_ddp, sinew::bench::kDdpRanks, options,
            wanted(options, {sinew::bench::kDdpFigure}));
  run_ranks(&measure_ring, sinew::bench::kRingRanks, options, wanted(options, ring_figures()));
  if (options.wants(sinew::bench::kSpawnFigure)) measure_spawn(options);
  const Figures over_mpi = wanted(options, sinew::bench::mpi_figures());
  if (!over_mpi.empty()) {
    std::vector<std::string> arguments = {"--figures", absl::StrJoin(over_mpi, ",")};
    if (options.quick()) arguments.push_back("--quick");
    run_mpi_job(arguments);
  }
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  sinew::init_launch(argc, argv);
  return sinew::bench::run_main("bench_groups", &bench::run, argc, argv);
}
