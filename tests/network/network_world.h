#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "sinew/tests/support/processes.h"
#include "sinew/tests/support/temporary_folder.h"

namespace sinew::testing {

/// Hosts with a network of their own, within this machine: Linux network namespaces that a router,
/// one more, joins. Each host has a subnet, its own loopback interface and its own /etc/hosts.
/// Nothing of it touches the machine's network, and all of it is gone with this object, or with the
/// test's process.
///
/// For one thread at a time. Failures throw std::runtime_error.
class NetworkWorld {
 public:
  enum class Firewall {
    /// Says nothing.
    kDrop,
    /// Answers that the port is closed.
    kReject,
  };

  /// Why there can be none here (no user namespaces, say, or no iptables); empty: it is possible.
  static std::string what_is_missing();

  /// Hosts 1 to `hosts`, all of which reach each other.
  explicit NetworkWorld(int hosts);
  ~NetworkWorld();
  NetworkWorld(const NetworkWorld&) = delete;
  NetworkWorld& operator=(const NetworkWorld&) = delete;

  static std::string address(int host);
  /// What runs a program there: for ChildProcess.
  std::vector<std::string> on(int host, const std::vector<std::string>& command) const;

  /// From now on it opens connections to others under the router's address, and nobody opens any to
  /// it.
  void put_behind_nat(int host);
  /// From now on nothing that `from` opens to `to` gets through.
  void forbid(int from, int to, Firewall how);
  /// Nothing gets from or to the host any more, until it is healed.
  void cut(int host);
  void heal(int host);
  /// Replaces what the host's /etc/hosts says: lines of an address and names.
  void set_hosts_file(int host, const std::string& lines);

 private:
  void add(int host);
  void run(const std::string& command);

  const TemporaryFolder folder_;
  std::unique_ptr<ChildProcess> router_;
  // Of a process that keeps the namespaces of each host.
  std::vector<pid_t> keepers_;
};

}  // namespace sinew::testing
