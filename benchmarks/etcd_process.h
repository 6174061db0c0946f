#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "sinew/benchmarks/server_process.h"

namespace sinew::bench {

/// Debian's etcd-server, on loopback, with its data in a folder that goes with it. Make it before
/// anything that starts threads, as a ServerProcess.
class EtcdProcess {
 public:
  /// It is about to listen there: clients wait until it does.
  std::uint16_t port() const { return port_; }

 private:
  struct Folder {
    Folder() {
      if (mkdtemp(path.data()) == nullptr) throw std::runtime_error("cannot make a folder");
    }
    ~Folder() { std::filesystem::remove_all(path); }
    std::string path = "/tmp/sinew-bench-etcd-XXXXXX";
  };

  std::vector<std::string> command() const {
    const std::string client = "http://127.0.0.1:" + std::to_string(port_);
    const std::string peer = "http://127.0.0.1:" + std::to_string(free_loopback_port());
    return {kProgram,
            "--name=s0",
            "--data-dir=" + folder_.path + "/data",
            "--listen-client-urls=" + client,
            "--advertise-client-urls=" + client,
            "--listen-peer-urls=" + peer,
            "--initial-advertise-peer-urls=" + peer,
            "--initial-cluster=s0=" + peer,
            "--logger=zap",
            "--log-outputs=" + folder_.path + "/log"};
  }
  void run(std::vector<std::string> words, const ServerProcess::ReportPort& report) const {
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    report(port_);
    execv(kProgram, arguments.data());
    throw std::runtime_error("there is no /usr/bin/etcd: apt-get install etcd-server");
  }

  static constexpr char kProgram[] = "/usr/bin/etcd";

  const Folder folder_;
  const std::uint16_t port_ = free_loopback_port();
  const std::vector<std::string> command_ = command();
  const ServerProcess process_{
      [this](const ServerProcess::ReportPort& report) { run(command_, report); }};
};

}  // namespace sinew::bench
