#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>
#include <vector>

namespace sinew::bench {

/// Whether this process was started by mpirun.
inline bool is_mpi_rank() { return std::getenv("OMPI_COMM_WORLD_RANK") != nullptr; }

/// Becomes an mpirun that runs this program with `arguments` in `ranks` processes of this host.
[[noreturn]] inline void become_mpi_job(int ranks, const std::vector<std::string>& arguments) {
  // Open MPI refuses root, and more ranks than cores, unless it is told. It looks for other hosts
  // on all interfaces; loopback is always there.
  std::vector<std::string> words = {"mpirun", "--allow-run-as-root", "--oversubscribe",
                                    "--mca",  "oob_tcp_if_include",  "lo",
                                    "-n",     std::to_string(ranks), "/proc/self/exe"};
  words.back().resize(4096);
  const ssize_t size = readlink("/proc/self/exe", words.back().data(), words.back().size());
  if (size < 0) throw std::system_error(errno, std::generic_category(), "cannot find itself");
  words.back().resize(static_cast<std::size_t>(size));
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execvp("mpirun.openmpi", pointers.data());  // Debian may have another MPI's too
  execvp("mpirun", pointers.data());
  throw std::system_error(errno, std::generic_category(), "cannot run mpirun");
}

}  // namespace sinew::bench
