// Starts the processes of a job; docs/launch.md.

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>

#include "sinew/launch/run/launcher.h"
#include "sinew/launch/run/run_options.h"

namespace {

/// sinew-registrar, which is in the folder of this program, with the rest of the arguments.
int run_registrar(char** arguments) {
  const std::string program =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "sinew-registrar";
  ::execv(program.c_str(), arguments);
  std::cerr << "sinew-run: cannot start " << program << ": " << std::strerror(errno) << "\n";
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  // A descriptor that is opened must not become the output of a process.
  while (true) {
    const int number = ::open("/dev/null", O_RDWR);
    if (number > STDERR_FILENO) ::close(number);
    if (number < 0 || number > STDERR_FILENO) break;
  }
  if (argc > 1 && std::string_view(argv[1]) == "--registrar") return run_registrar(argv + 1);
  try {
    sinew::internal::ParsedRunOptions parsed = sinew::internal::parse_run_options(argc, argv);
    if (!parsed.options) return parsed.status;
    return sinew::internal::Launcher(*std::move(parsed.options)).run();
  } catch (const std::exception& error) {
    std::cerr << "sinew-run: " << error.what() << "\n";
    return 1;
  }
}
