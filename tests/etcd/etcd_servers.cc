#include "sinew/tests/etcd/etcd_servers.h"

#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <deque>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sinew/testing/eventually.h"

namespace sinew::testing {
namespace {

constexpr char kEtcd[] = "/usr/bin/etcd";
// etcd allocates two segments of its log at once, of 64 MB each; the rest is small here.
constexpr std::size_t kServerBytes = 192 << 20;

/// Waits for the end of the test, which closes the pipe, and for that of the servers.
constexpr char kKeeper[] =
    "exec 2> /dev/null; while read -r line; do :; done; sleep 1; rm -rf \"$0\"";

std::string url(int port) { return absl::StrCat("http://127.0.0.1:", port); }

bool listens(int port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool is_there =
      ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  ::close(socket);
  return is_there;
}

bool has(const std::vector<std::string>& arguments, const std::string& name) {
  for (const std::string& argument : arguments) {
    if (argument == name) return true;
  }
  return false;
}

}  // namespace

bool EtcdServers::is_installed() { return access(kEtcd, X_OK) == 0; }

EtcdServers::EtcdServers(int count, std::vector<std::string> arguments)
    : arguments_(std::move(arguments)),
      folder_(fast_folder(static_cast<std::size_t>(count + 1) * kServerBytes)),
      // Apart from the test: what kills that kills its processes too.
      keeper_({"/usr/bin/setsid", "--fork", "/bin/sh", "-c", kKeeper, folder_.file("")}) {
  for (int i = 0; i < count; ++i) ports_.push_back({free_port(), free_port()});
  processes_.resize(ports_.size());
  for (int i = 0; i < count; ++i) start(i);
  // Servers with TLS answer those who have certificates.
  has(arguments_, "--cert-file") ? wait_until_they_listen() : wait_until_served();
}

EtcdServers::~EtcdServers() {
  if (!::testing::Test::HasFailure()) return;
  constexpr std::size_t kLines = 5;
  for (int i = 0; i < static_cast<int>(ports_.size()); ++i) {
    std::deque<std::string> lines;
    std::ifstream file(log(i));
    for (std::string line; std::getline(file, line);) {
      lines.push_back(std::move(line));
      if (lines.size() > kLines) lines.pop_front();
    }
    std::cerr << "etcd s" << i << ":\n" << absl::StrJoin(lines, "\n") << "\n";
  }
}

std::string EtcdServers::endpoint(int server) const {
  return absl::StrCat("127.0.0.1:", ports_[static_cast<std::size_t>(server)].client);
}

std::vector<std::string> EtcdServers::endpoints() const {
  std::vector<std::string> all;
  for (std::size_t i = 0; i < ports_.size(); ++i) all.push_back(endpoint(static_cast<int>(i)));
  return all;
}

internal::etcd::EtcdOptions EtcdServers::options() const {
  internal::etcd::EtcdOptions options;
  options.endpoints = endpoints();
  return options;
}

internal::etcd::EtcdOptions EtcdServers::patient_options() const {
  internal::etcd::EtcdOptions patient = options();
  patient.attempt_timeout = std::chrono::seconds(60);
  return patient;
}

void EtcdServers::start(int server) {
  const auto index = static_cast<std::size_t>(server);
  std::vector<std::string> cluster;
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    cluster.push_back(absl::StrCat("s", i, "=", url(ports_[i].peer)));
  }
  const std::string scheme = has(arguments_, "--cert-file") ? "https" : "http";
  const std::string client = absl::StrCat(scheme, "://", endpoint(server));
  std::vector<std::string> command = {"/usr/bin/setpriv",
                                      "--pdeathsig",
                                      "KILL",
                                      kEtcd,
                                      "--name",
                                      absl::StrCat("s", server),
                                      "--data-dir",
                                      folder_.file(absl::StrCat("data", server)),
                                      "--listen-client-urls",
                                      client,
                                      "--advertise-client-urls",
                                      client,
                                      "--listen-peer-urls",
                                      url(ports_[index].peer),
                                      "--initial-advertise-peer-urls",
                                      url(ports_[index].peer),
                                      "--initial-cluster",
                                      absl::StrJoin(cluster, ","),
                                      "--initial-cluster-token",
                                      absl::StrCat("test-", getpid()),
                                      "--logger",
                                      "zap",
                                      "--log-outputs",
                                      log(server)};
  command.insert(command.end(), arguments_.begin(), arguments_.end());
  processes_[index] = std::make_unique<ChildProcess>(command);
}

void EtcdServers::kill(int server) { process(server).signal(SIGKILL); }

void EtcdServers::wait_until_served() const {
  auto client = internal::etcd::EtcdClient::start(options());
  if (!client.ok()) throw std::runtime_error(client.status().ToString());
  internal::etcd::pb::RangeRequest request;
  request.set_key("any");
  const auto answer = ask(**client, request, std::chrono::seconds(60));
  if (!answer.ok()) throw std::runtime_error(answer.status().ToString());
}

void EtcdServers::wait_until_they_listen() const {
  for (const Ports& ports : ports_) {
    if (eventually([&] { return listens(ports.client); })) continue;
    throw std::runtime_error(absl::StrCat("etcd does not listen at port ", ports.client));
  }
}

void EtcdServers::wipe(int server) {
  std::filesystem::remove_all(folder_.file(absl::StrCat("data", server)));
}

int EtcdServers::leader() const {
  int leader = -1;
  eventually([&] {
    for (std::size_t i = 0; i < ports_.size(); ++i) {
      internal::etcd::EtcdOptions one;
      one.endpoints = {endpoint(static_cast<int>(i))};
      auto client = internal::etcd::EtcdClient::start(one);
      const auto status =
          ask(**client, internal::etcd::pb::StatusRequest(), std::chrono::seconds(1));
      if (status.ok() && status->leader() == status->header().member_id()) {
        leader = static_cast<int>(i);
      }
    }
    return leader >= 0;
  });
  return leader;
}

void EtcdServers::require_root(const std::string& password) const {
  const auto admin = *internal::etcd::EtcdClient::start(patient_options());
  internal::etcd::pb::AuthUserAddRequest user;
  user.set_name("root");
  user.set_password(password);
  internal::etcd::pb::AuthUserGrantRoleRequest role;
  role.set_user("root");
  role.set_role("root");
  for (const absl::Status& status :
       {ask(*admin, user, std::chrono::seconds(60)).status(),
        ask(*admin, role, std::chrono::seconds(60)).status(),
        ask(*admin, internal::etcd::pb::AuthEnableRequest(), std::chrono::seconds(60)).status()}) {
    if (!status.ok()) throw std::runtime_error(status.ToString());
  }
}

}  // namespace sinew::testing
