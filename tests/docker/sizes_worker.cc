// A worker of the scenarios of limits. Rank 0 sends the others tensors of 1 to 64 MiB, until all
// are sent or it is asked to end; each says what it is told.
//
// usage: sizes_worker MESSAGES, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT

#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <iostream>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "sinew/sinew.h"

namespace sizes_worker {
inline at::Tensor echo(const at::Tensor& tensor) { return tensor; }
}  // namespace sizes_worker

SINEW_METHOD(sizes_worker::echo);

namespace sizes_worker {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

void say(const std::string& line) { std::cout << line + "\n" << std::flush; }

void hear(int /*number*/) {
  constexpr char kHeard[] = "heard\n";
  [[maybe_unused]] const ssize_t written = ::write(STDOUT_FILENO, kHeard, sizeof kHeard - 1);
}

void send(const sinew::Worker& worker, int messages) {
  std::minstd_rand random(3);
  for (int i = 0; i < messages && !sinew::StopSignal::requested(); ++i) {
    std::vector<sinew::Future<at::Tensor>> echoes;
    for (const sinew::WorkerInfo& peer : worker.workers()) {
      if (peer.rank == worker.rank()) continue;
      const auto size = static_cast<std::int64_t>(random() % (63 * kMiB)) + kMiB;
      echoes.push_back(worker.peer(peer.name).async<&echo>(at::full({size}, i % 100, at::kByte)));
    }
    for (const auto& each : echoes) {
      const at::Tensor& came = each.wait();
      const bool is_right = came.min().item<int>() == i % 100 && came.max().item<int>() == i % 100;
      if (!is_right) throw std::runtime_error("wrong bytes");
    }
    if (i % 10 == 9) say("sent " + std::to_string(i + 1));
  }
}

int run(int messages) {
  const sinew::StopSignal stop([] { say("is asked to end"); });
  ::signal(SIGUSR1, hear);
  sinew::WorkerOptions options;
  options.name = "worker" + std::to_string(sinew::launch_place().rank);
  options.credentials = sinew::Credentials::insecure_on_any_network();
  options.methods.add<&echo>();
  const sinew::Worker worker = sinew::init_rpc(std::move(options));
  for (const std::string name : {"memory_bytes", "threads"}) {
    say(name + " " + std::to_string(worker.counters()["rpc.limit_" + name]));
  }
  if (worker.rank() == 0) send(worker, messages);
  worker.shutdown();
  say("ends in order");
  return 0;
}

}  // namespace
}  // namespace sizes_worker

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: sizes_worker MESSAGES" << std::endl;
    return 2;
  }
  try {
    return sizes_worker::run(std::stoi(argv[1]));
  } catch (const std::exception& error) {
    std::cerr << "sizes_worker: " << error.what() << std::endl;
    return 3;
  }
}
