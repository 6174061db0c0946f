// Holds the list of a job's members, and is no worker itself; docs/membership.md.

#include <chrono>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/synchronization/notification.h"
#include "sinew/rpc/base/environment.h"
#include "sinew/rpc/base/job_token.h"
#include "sinew/rpc/base/stop_signal.h"
#include "sinew/rpc/membership/registrar/registrar_process.h"
#include "sinew/rpc/transport/grpc/grpc_transport.h"
#include "sinew/version.h"

namespace {

using sinew::internal::RegistrarProcess;

struct Flags {
  std::string bind = "127.0.0.1:29500";
  RegistrarProcess::Options registrar;
  double lease_s = 15;
  sinew::TlsFiles tls;
  bool trusted_network = false;
};

void add_flags(CLI::App& app, Flags& flags) {
  app.add_option("--bind", flags.bind,
                 "HOST:PORT to listen on: what workers have as tcp://HOST:PORT, with "
                 "found_job = kNever")
      ->capture_default_str();
  app.add_option("--job", flags.registrar.job, "Name of the job (WorkerOptions::job)")
      ->capture_default_str();
  app.add_option("--world-size", flags.registrar.world_size,
                 "Workers of a fixed world; 0: they come and go")
      ->check(CLI::Range(0, 65536))
      ->capture_default_str();
  app.add_option("--lease", flags.lease_s, "Seconds of silence after which a worker is lost")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  CLI::Option* const ca = app.add_option("--ca", flags.tls.ca, "Authorities of the job, in PEM");
  CLI::Option* const certificate = app.add_option(
      "--cert", flags.tls.certificate, "Certificate for 'registrar' and for the host, in PEM");
  CLI::Option* const key = app.add_option("--key", flags.tls.key, "Its private key, in PEM");
  ca->needs(certificate)->needs(key);
  certificate->needs(ca);
  key->needs(ca);
  app.add_flag("--trusted-network", flags.trusted_network,
               "Without certificates on an address that others reach: whoever does is trusted")
      ->excludes(ca);
  app.set_version_flag("--version", "sinew-registrar " SINEW_VERSION_STRING);
}

sinew::Credentials credentials_of(const Flags& flags) {
  if (!flags.tls.ca.empty()) return sinew::Credentials::mutual_tls(flags.tls);
  return flags.trusted_network ? sinew::Credentials::insecure_on_any_network()
                               : sinew::Credentials::insecure();
}

int run(Flags flags) {
  absl::StatusOr<std::string> token = sinew::internal::read_job_token(sinew::process_environment());
  if (!token.ok()) {
    std::cerr << "sinew-registrar: " << token.status().message() << "\n";
    return 2;
  }
  flags.registrar.token = *std::move(token);
  const absl::StatusOr<bool> encrypted_only =
      sinew::encrypted_only_of(sinew::process_environment());
  if (!encrypted_only.ok() || (*encrypted_only && flags.tls.ca.empty())) {
    std::cerr << "sinew-registrar: "
              << (encrypted_only.ok() ? "SINEW_ENCRYPTED_ONLY is 1: give --ca, --cert and --key"
                                      : encrypted_only.status().message())
              << "\n";
    return 2;
  }
  // From before anybody is told that it runs: who starts it may end it at once.
  absl::Notification is_over;
  const sinew::StopSignal signal([&] { is_over.Notify(); });
  flags.registrar.lease = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(flags.lease_s));
  sinew::internal::GrpcTransportOptions transport;
  transport.listen = {flags.bind};
  transport.advertise_towards = flags.bind;
  transport.credentials = credentials_of(flags);
  transport.tuning.same_host_plane = false;
  const auto started = RegistrarProcess::start(
      flags.registrar, sinew::internal::make_grpc_transport(std::move(transport)));
  if (!started.ok()) {
    std::cerr << "sinew-registrar: " << started.status().message() << "\n";
    return 1;
  }
  std::cout << "The list of job '" << flags.registrar.job << "' is at tcp://" << flags.bind
            << std::endl;
  is_over.WaitForNotification();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Holds the list of a job's members: all its workers may die", "sinew-registrar");
  Flags flags;
  add_flags(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    return run(std::move(flags));
  } catch (const std::exception& error) {
    std::cerr << "sinew-registrar: " << error.what() << "\n";
    return 1;
  }
}
