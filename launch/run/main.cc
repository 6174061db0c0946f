// Starts the processes of a job; docs/launch.md.

#include <fcntl.h>
#include <unistd.h>

#include <exception>
#include <iostream>
#include <utility>

#include "sinew/launch/run/launcher.h"
#include "sinew/launch/run/run_options.h"

int main(int argc, char** argv) {
  // A descriptor that is opened must not become somebody's output.
  while (true) {
    const int number = ::open("/dev/null", O_RDWR);
    if (number > STDERR_FILENO) ::close(number);
    if (number < 0 || number > STDERR_FILENO) break;
  }
  try {
    sinew::internal::ParsedRunOptions parsed = sinew::internal::parse_run_options(argc, argv);
    if (!parsed.options) return parsed.status;
    return sinew::internal::Launcher(*std::move(parsed.options)).run();
  } catch (const std::exception& error) {
    std::cerr << "sinew-run: " << error.what() << "\n";
    return 1;
  }
}
