// What operators of a job do by hand; docs/operate.md.

#include <exception>
#include <iostream>

#include "CLI/CLI.hpp"
#include "sinew/launch/ctl/certificates.h"
#include "sinew/launch/ctl/job_commands.h"
#include "sinew/version.h"

int main(int argc, char** argv) {
  CLI::App app("What operators of a job do by hand", "sinew-ctl");
  app.require_subcommand(1);
  app.set_version_flag("--version", "sinew-ctl " SINEW_VERSION_STRING);
  sinew::internal::Command command;
  sinew::internal::add_certificate_commands(app, command);
  sinew::internal::add_job_commands(app, command);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    const absl::Status done = command();
    if (done.ok()) return 0;
    std::cerr << "sinew-ctl: " << done.message() << "\n";
  } catch (const std::exception& error) {
    std::cerr << "sinew-ctl: " << error.what() << "\n";
  }
  return 1;
}
