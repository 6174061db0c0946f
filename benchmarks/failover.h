#pragma once

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "sinew/benchmarks/one_thread.h"
#include "sinew/benchmarks/server_process.h"
#include "sinew/optim/standby.h"
#include "sinew/sinew.h"

namespace sinew::bench {

/// Parameter servers that are killed, each of them once: a part of the processes that a standby
/// stands in for, and a part that is started again from a checkpoint. How long it takes until a
/// trainer, this process, has a step acknowledged again.
class FailoverProcesses {
 public:
  using Serve = std::function<void(WorkerOptions& options)>;

  /// Starts all processes: to be made before anything that starts threads. `kills` of each kind.
  /// They meet, and have their checkpoints, in `folder`, which exists.
  FailoverProcesses(std::string folder, int kills, Serve serve)
      : folder_(std::move(folder)), serve_(std::move(serve)) {
    for (int number = 0; number < kills; ++number) {
      const std::string n = std::to_string(number);
      mirrored_.push_back({"mirrored" + n, start("mirrored" + n), nullptr});
      standbys_.push_back(start("standby" + n));
      saved_.push_back({"saved" + n, start("saved" + n), std::make_unique<Latch>()});
      restarted_.push_back(start_when(*saved_.back().latch, "saved" + n));
    }
  }

  WorkerOptions place(const std::string& name) const {
    WorkerOptions options;
    options.name = name;
    options.init_method = "file://" + folder_ + "/meet";
    return options;
  }

  /// Seconds from the kill of a server to the first step that its standby has acknowledged.
  /// `Layer` is a module that is made with `width`, and trained by `step(layer, optimizer)`.
  template <class Layer, class Step>
  std::vector<double> standbys_take_over(const Worker& worker, std::int64_t width,
                                         const optim::Options& options, const Step& step) const {
    std::vector<double> seconds;
    for (std::size_t i = 0; i < mirrored_.size(); ++i) {
      const Server& server = mirrored_[i];
      worker.wait_for(server.name, kPatience);
      const Peer spare = worker.wait_for("standby" + std::to_string(i), kPatience);
      const RemoteModule<Layer> layer(worker, server.name, width);
      const RemoteModule<Layer> mirror(spare, width);
      optim::DistributedOptimizer optimizer(worker, layer.remote_parameters(), options);
      const optim::Standby standby(optimizer, server.name, mirror.remote_parameters(), options);
      for (int n = 0; n < kSteps; ++n) step(layer, optimizer);
      seconds.push_back(time_after_kill(server, [&] {
        // As a trainer would learn of it.
        fail(layer, optimizer, step);
        optimizer = take_over(optimizer, {standby});
        step(mirror, optimizer);
      }));
    }
    return seconds;
  }

  /// The same with a server that starts again and loads a checkpoint, without the time that the
  /// system takes to load a program: its process waits to begin. Steps since the checkpoint are not
  /// made again.
  template <class Layer, class Step>
  std::vector<double> servers_load(const Worker& worker, std::int64_t width,
                                   const optim::Options& options, const Step& step) const {
    std::vector<double> seconds;
    for (const Server& server : saved_) {
      worker.wait_for(server.name, kPatience);
      RemoteModule<Layer> layer(worker, server.name, width);
      optim::DistributedOptimizer optimizer(worker, layer.remote_parameters(), options);
      for (int n = 0; n < kSteps; ++n) step(layer, optimizer);
      optimizer.save(server.name);
      seconds.push_back(time_after_kill(server, [&] {
        server.latch->open();
        fail(layer, optimizer, step);
        layer = RemoteModule<Layer>(worker.wait_for(server.name, kPatience), width);
        optimizer = optimizer.rebind(layer.remote_parameters(), options);
        optimizer.load(server.name);
        step(layer, optimizer);
      }));
    }
    return seconds;
  }

 private:
  static constexpr auto kPatience = std::chrono::minutes(2);
  static constexpr int kSteps = 5;

  /// What a process waits for that has been forked already.
  class Latch {
   public:
    Latch() {
      if (pipe(ends_) != 0) {
        throw std::system_error(errno, std::generic_category(), "cannot make a pipe");
      }
    }
    ~Latch() {
      close(ends_[0]);
      close(ends_[1]);
    }
    Latch(const Latch&) = delete;
    Latch& operator=(const Latch&) = delete;
    void open() const {
      const char byte = 0;
      if (write(ends_[1], &byte, 1) != 1) {
        throw std::system_error(errno, std::generic_category(), "cannot write to a pipe");
      }
    }
    void wait() const {
      char byte = 0;
      if (read(ends_[0], &byte, 1) != 1) _exit(1);
    }

   private:
    int ends_[2] = {-1, -1};
  };
  struct Server {
    std::string name;
    std::unique_ptr<ServerProcess> process;
    std::unique_ptr<Latch> latch;
  };

  std::unique_ptr<ServerProcess> start(const std::string& name) const {
    return std::make_unique<ServerProcess>([this, name](const ServerProcess::ReportPort& report) {
      report(1);  // they meet at a file
      serve(name);
    });
  }
  std::unique_ptr<ServerProcess> start_when(const Latch& latch, const std::string& name) const {
    return std::make_unique<ServerProcess>(
        [this, &latch, name](const ServerProcess::ReportPort& report) {
          report(1);
          latch.wait();
          serve(name);
        });
  }
  [[noreturn]] void serve(const std::string& name) const {
    compute_on_one_thread();
    WorkerOptions options = place(name);
    serve_(options);
    const Worker worker = init_rpc(std::move(options));
    optim::serve_checkpoints(worker, folder_);
    for (;;) pause();  // The measuring process kills this one.
  }

  template <class Layer, class Step>
  static void fail(const RemoteModule<Layer>& layer, const optim::DistributedOptimizer& optimizer,
                   const Step& step) {
    try {
      for (;;) step(layer, optimizer);
    } catch (const RpcError& error) {
      if (error.code() != ErrorCode::kUnavailable) throw;
    }
  }
  static double time_after_kill(const Server& server, const std::function<void()>& recover) {
    const auto start = std::chrono::steady_clock::now();
    kill(server.process->process(), SIGKILL);
    recover();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  const std::string folder_;
  const Serve serve_;
  std::vector<Server> mirrored_;
  std::vector<std::unique_ptr<ServerProcess>> standbys_;
  std::vector<Server> saved_;
  std::vector<std::unique_ptr<ServerProcess>> restarted_;
};

}  // namespace sinew::bench
