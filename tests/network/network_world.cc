#include "sinew/tests/network/network_world.h"

#include <fstream>
#include <stdexcept>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace sinew::testing {
namespace {

// The user is root in there, and the shell ends with this process.
const std::vector<std::string>& in_new_network() {
  static const auto& command =
      *new std::vector<std::string>{"/usr/bin/unshare", "--user", "--map-root-user", "--net",
                                    "--mount",          "--fork", "--kill-child",    "/bin/sh"};
  return command;
}

std::string subnet(int host) { return absl::StrCat("10.77.", host, ".0/24"); }
std::string router_address(int host) { return absl::StrCat("10.77.", host, ".1"); }

// One line: the exit status and what it wrote.
std::string ask(ChildProcess& shell, const std::string& command) {
  return shell.ask(absl::StrCat("said=$( (", command,
                                ") 2>&1 ); echo $? $(printf %s \"$said\" | tr '\\n' ' ')"));
}

}  // namespace

std::string NetworkWorld::what_is_missing() {
  try {
    ChildProcess shell(in_new_network());
    // iptables needs modules of the kernel, which may not be there either.
    const std::string said =
        ask(shell,
            "PATH=$PATH:/usr/sbin:/sbin; command -v nsenter && command -v setpriv && ip link set "
            "lo up && echo 1 > /proc/sys/net/ipv4/ip_forward && iptables -t nat -A POSTROUTING -s "
            "10.77.1.0/24 -j MASQUERADE && iptables -A FORWARD -m conntrack --ctstate NEW -j DROP "
            "&& iptables -A FORWARD -p tcp -j REJECT --reject-with tcp-reset");
    if (said.rfind("0 ", 0) == 0) return "";
    return absl::StrCat("no network of its own can be made here: ", said);
  } catch (const std::runtime_error& error) {
    return absl::StrCat("no network of its own can be made here: ", error.what());
  }
}

NetworkWorld::NetworkWorld(int hosts) : router_(std::make_unique<ChildProcess>(in_new_network())) {
  std::ofstream(folder_.file("resolv.conf")) << "nameserver 127.0.0.1\n";
  run("echo 1 > /proc/sys/net/ipv4/ip_forward");
  run("ip link set lo up");
  for (int host = 1; host <= hosts; ++host) add(host);
}

NetworkWorld::~NetworkWorld() = default;

void NetworkWorld::run(const std::string& command) {
  const std::string said = ask(*router_, absl::StrCat("PATH=$PATH:/usr/sbin:/sbin; ", command));
  if (said.rfind('0', 0) != 0) throw std::runtime_error(absl::StrCat(command, ": ", said));
}

void NetworkWorld::add(int host) {
  // It says its pid, which is the same outside, once it has its namespaces; and ends with the
  // shell.
  const std::string said = router_->ask(
      "setpriv --pdeathsig KILL unshare --net --mount sh -c 'echo $$; exec sleep infinity' &");
  int keeper = 0;
  if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(said), &keeper)) {
    throw std::runtime_error(absl::StrCat("no namespace: ", said));
  }
  keepers_.push_back(keeper);
  const std::string in = absl::StrCat("nsenter -t ", keeper, " -n -m ");
  const std::string link = absl::StrCat("host", host);
  run(absl::StrCat("ip link add ", link, " type veth peer name eth0 netns ", keeper));
  run(absl::StrCat("ip addr add ", router_address(host), "/24 dev ", link));
  run(absl::StrCat("ip link set ", link, " up"));
  run(absl::StrCat(in, "ip link set lo up"));
  run(absl::StrCat(in, "ip addr add ", address(host), "/24 dev eth0"));
  run(absl::StrCat(in, "ip link set eth0 up"));
  run(absl::StrCat(in, "ip route add default via ", router_address(host)));
  set_hosts_file(host, "127.0.0.1 localhost");
  run(absl::StrCat(in, "mount --bind ", folder_.file(link), " /etc/hosts"));
  // Nobody knows any other names, and says so at once.
  run(absl::StrCat(in, "mount --bind ", folder_.file("resolv.conf"), " /etc/resolv.conf"));
}

std::string NetworkWorld::address(int host) { return absl::StrCat("10.77.", host, ".2"); }

std::vector<std::string> NetworkWorld::on(int host, const std::vector<std::string>& command) const {
  const pid_t keeper = keepers_.at(static_cast<std::size_t>(host) - 1);
  std::vector<std::string> whole = {
      "/usr/bin/nsenter",      "--target", absl::StrCat(keeper), "--user", "--net", "--mount",
      "--preserve-credentials"};
  whole.insert(whole.end(), command.begin(), command.end());
  return whole;
}

void NetworkWorld::put_behind_nat(int host) {
  run(absl::StrCat("iptables -t nat -A POSTROUTING -s ", subnet(host), " -j MASQUERADE"));
  run(absl::StrCat("iptables -A FORWARD -d ", subnet(host), " -m conntrack --ctstate NEW -j DROP"));
}

void NetworkWorld::forbid(int from, int to, Firewall how) {
  const std::string action = how == Firewall::kDrop ? "DROP" : "REJECT --reject-with tcp-reset";
  run(absl::StrCat("iptables -A FORWARD -p tcp -s ", subnet(from), " -d ", subnet(to),
                   " -m conntrack --ctstate NEW -j ", action));
}

void NetworkWorld::cut(int host) {
  for (const char* end : {"-s", "-d"}) {
    run(absl::StrCat("iptables -I FORWARD ", end, " ", subnet(host), " -j DROP"));
  }
}

void NetworkWorld::heal(int host) {
  for (const char* end : {"-s", "-d"}) {
    run(absl::StrCat("iptables -D FORWARD ", end, " ", subnet(host), " -j DROP"));
  }
}

void NetworkWorld::set_hosts_file(int host, const std::string& lines) {
  // In place, since it is the file itself that is bound.
  std::ofstream file(folder_.file(absl::StrCat("host", host)));
  file << lines << "\n";
  if (!file.flush()) throw std::runtime_error("cannot write a hosts file");
}

}  // namespace sinew::testing
