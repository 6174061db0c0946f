// Runs a program as under the system call filter of a container: deny_calls CALL=ERROR... PROGRAM
// [ARGUMENTS]. CALL may be waitid:3, for those alone whose first argument is 3.

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace {

const std::map<std::string, int> kCalls = {
    {"pidfd_open", SYS_pidfd_open},
    {"pidfd_send_signal", SYS_pidfd_send_signal},
    {"waitid", SYS_waitid},
    {"close_range", SYS_close_range},
    {"memfd_create", SYS_memfd_create},
    {"process_vm_readv", SYS_process_vm_readv},
    {"prctl", SYS_prctl},
};
const std::map<std::string, int> kErrors = {{"EPERM", EPERM}, {"ENOSYS", ENOSYS}};

void append(std::vector<sock_filter>& filter, const std::string& rule) {
  const std::size_t equals = rule.find('=');
  const std::size_t colon = rule.find(':');
  const auto call = static_cast<std::uint32_t>(kCalls.at(rule.substr(0, std::min(equals, colon))));
  const auto error = static_cast<std::uint32_t>(kErrors.at(rule.substr(equals + 1)));
  const bool has_argument = colon != std::string::npos;
  const auto load = [](std::size_t offset) {
    return sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset));
  };
  const auto skip_unless = [](std::uint32_t value, std::uint8_t instructions) {
    return sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, instructions);
  };
  filter.push_back(load(offsetof(seccomp_data, nr)));
  filter.push_back(skip_unless(call, has_argument ? 3 : 1));
  if (has_argument) {
    filter.push_back(load(offsetof(seccomp_data, args)));
    filter.push_back(skip_unless(static_cast<std::uint32_t>(std::stoi(rule.substr(colon + 1))), 1));
  }
  filter.push_back(sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error));
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<sock_filter> filter;
  int program = 1;
  for (; program < argc && std::string(argv[program]).find('=') != std::string::npos; ++program) {
    append(filter, argv[program]);
  }
  filter.push_back(sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog rules{static_cast<unsigned short>(filter.size()), filter.data()};
  const bool is_set = ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &rules) == 0;
  if (is_set && program < argc) ::execvp(argv[program], argv + program);
  std::perror("deny_calls");
  return 125;
}
