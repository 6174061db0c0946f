// Holds the list of a job's members, and is no worker itself; docs/membership.md.

#include <chrono>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/synchronization/notification.h"
#include "sinew/rpc/base/environment.h"
#include "sinew/rpc/base/error.h"
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
  app.add_flag(
         "--trusted-network", flags.trusted_network,
         "Without certificates on an address that others reach: all that reach it are trusted")
      ->excludes(ca);
  app.set_version_flag("--version", "sinew-registrar " SINEW_VERSION_STRING);
}

/// What the flags do not say the environment does.
sinew::Credentials credentials_of(const Flags& flags, const sinew::EnvironmentReader& environment) {
  using sinew::Credentials;
  const absl::StatusOr<bool> job_tls = sinew::switch_of(environment, "SINEW_JOB_TLS");
  const absl::StatusOr<bool> encrypted = sinew::switch_of(environment, "SINEW_ENCRYPTED_ONLY");
  if (!job_tls.ok()) sinew::internal::throw_error(job_tls.status());
  if (!encrypted.ok()) sinew::internal::throw_error(encrypted.status());
  if (!flags.tls.ca.empty()) return Credentials::mutual_tls(flags.tls);
  if (*job_tls && !flags.trusted_network) {
    const std::string host = flags.bind.substr(0, flags.bind.rfind(':'));
    absl::StatusOr<Credentials> made =
        Credentials::for_worker(flags.registrar.token, flags.registrar.job, "registrar",
                                {"localhost", "127.0.0.1", "::1", host});
    if (!made.ok()) sinew::internal::throw_error(made.status());
    return *std::move(made);
  }
  if (*encrypted) {
    throw std::invalid_argument("SINEW_ENCRYPTED_ONLY is 1: give --ca, --cert and --key");
  }
  return flags.trusted_network ? Credentials::insecure_on_any_network() : Credentials::insecure();
}

int run(Flags flags) {
  const sinew::EnvironmentReader environment = sinew::process_environment();
  absl::StatusOr<std::string> token = sinew::internal::read_job_token(environment);
  if (!token.ok()) sinew::internal::throw_error(token.status());
  flags.registrar.token = *std::move(token);
  // From before anybody is told that it runs: who starts it may end it at once.
  absl::Notification is_over;
  const sinew::StopSignal signal([&] { is_over.Notify(); });
  flags.registrar.lease = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(flags.lease_s));
  sinew::internal::GrpcTransportOptions transport;
  transport.listen = {flags.bind};
  transport.advertise_towards = flags.bind;
  transport.credentials = credentials_of(flags, environment);
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
