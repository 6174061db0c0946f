#include <mpi.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "sinew/benchmarks/group_figures.h"
#include "sinew/benchmarks/measure.h"
#include "sinew/benchmarks/mpi_job.h"

// Plain MPI: MPI_Allreduce in place, as it comes.
namespace sinew::bench {
namespace {

void require(int code, const char* operation) {
  if (code != MPI_SUCCESS) throw std::runtime_error(std::string(operation) + " failed");
}

void measure(const Options& options, int rank) {
  for (const std::int64_t bytes : kReducedBytes) {
    if (!options.wants(mpi_figure(bytes))) continue;
    std::vector<float> values(static_cast<std::size_t>(bytes) / sizeof(float));
    const auto all_reduce = [&] {
      require(MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT,
                            MPI_SUM, MPI_COMM_WORLD),
              "MPI_Allreduce");
    };
    require(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
    const Latency latency = measure_latency(timed_mpi_operations(options, bytes), all_reduce);
    if (rank == 0) options.report(mpi_figure(bytes), latency.p50_us);
  }
}

int run(int argc, char** argv) {
  const Options options = parse_options(argc, argv, mpi_figures());
  if (!is_mpi_rank()) become_mpi_job(kMpiRanks, {argv + 1, argv + argc});
  require(MPI_Init(&argc, &argv), "MPI_Init");
  int rank = 0;
  require(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  measure(options, rank);
  require(MPI_Finalize(), "MPI_Finalize");
  return 0;
}

}  // namespace
}  // namespace sinew::bench

int main(int argc, char** argv) {
  return sinew::bench::run_main("mpi_all_reduce", &sinew::bench::run, argc, argv);
}
