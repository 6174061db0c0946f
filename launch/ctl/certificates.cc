#include "sinew/launch/ctl/certificates.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sinew/rpc/base/internal/file_descriptor.h"
#include "sinew/rpc/base/job_token.h"
#include "sinew/rpc/transport/authority.h"

namespace sinew::internal {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kForAll = 0644;
constexpr mode_t kForOwner = 0600;

struct CertificateFlags {
  std::string folder;
  std::string job = "default";
  int days = 365;
  bool from_token = false;
  std::vector<std::string> subjects;
  std::vector<std::string> files;
};

absl::Status write_file(const fs::path& path, const std::string& text, mode_t mode) {
  // A new file each time: who has the old one open keeps it whole.
  const fs::path fresh = path.string() + ".new";
  fs::remove(fresh);
  const FileDescriptor file(
      ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
  std::size_t written = 0;
  while (file.valid() && written < text.size()) {
    const ssize_t wrote = ::write(file.number(), text.data() + written, text.size() - written);
    if (wrote < 0 && errno != EINTR) break;
    if (wrote > 0) written += static_cast<std::size_t>(wrote);
  }
  const bool is_there = file.valid() && written == text.size() &&
                        ::fchmod(file.number(), mode) == 0 && ::fsync(file.number()) == 0 &&
                        ::rename(fresh.c_str(), path.c_str()) == 0;
  if (is_there) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cannot write ", path.string(), ": ", std::strerror(errno)));
}

absl::StatusOr<std::string> read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || text.empty()) {
    return absl::NotFoundError(absl::StrCat("cannot read ", path.string()));
  }
  return text;
}

absl::StatusOr<Authority> new_authority(const CertificateFlags& flags) {
  if (!flags.from_token) return Authority::make(flags.job, flags.days);
  const absl::StatusOr<std::string> token = read_job_token(process_environment());
  if (!token.ok()) return token.status();
  if (token->empty()) {
    return absl::InvalidArgumentError(
        "--from-token: neither SINEW_JOB_TOKEN nor "
        "SINEW_JOB_TOKEN_FILE is set");
  }
  return Authority::of_token(*token, flags.job);
}

absl::Status init(const CertificateFlags& flags) {
  const fs::path folder = flags.folder;
  if (fs::exists(folder / "ca.pem") || fs::exists(folder / "ca.key")) {
    return absl::AlreadyExistsError(
        absl::StrCat(flags.folder,
                     " has an authority: its certificates would be worth nothing any more. Give "
                     "another folder"));
  }
  const absl::StatusOr<Authority> authority = new_authority(flags);
  if (!authority.ok()) return authority.status();
  std::error_code failed;
  fs::create_directories(folder, failed);
  absl::Status written = write_file(folder / "ca.key", authority->key(), kForOwner);
  written.Update(write_file(folder / "ca.pem", authority->certificate(), kForAll));
  if (!written.ok()) return written;
  std::cout << "the authority of job '" << flags.job << "' is in " << flags.folder
            << ": keep ca.key where certificates are made\n";
  return absl::OkStatus();
}

absl::Status issue(const CertificateFlags& flags) {
  const fs::path folder = flags.folder;
  const absl::StatusOr<std::string> certificate = read_file(folder / "ca.pem");
  const absl::StatusOr<std::string> key = read_file(folder / "ca.key");
  if (!certificate.ok() || !key.ok()) {
    return absl::NotFoundError(
        absl::StrCat(certificate.ok() ? key.status().message() : certificate.status().message(),
                     ": sinew-ctl certs init ", flags.folder, " makes an authority"));
  }
  const absl::StatusOr<Authority> authority = Authority::load(*certificate, *key);
  if (!authority.ok()) {
    return absl::Status(authority.status().code(),
                        absl::StrCat(flags.folder, ": ", authority.status().message()));
  }
  for (const std::string& subject : flags.subjects) {
    Authority::Subject wanted;
    wanted.hosts = absl::StrSplit(subject, ',');
    wanted.worker = wanted.hosts.front();
    wanted.hosts.erase(wanted.hosts.begin());
    const absl::StatusOr<TlsPem> made = authority->issue(wanted, flags.days);
    if (!made.ok()) return made.status();
    // The key first: a worker that reads in between finds a pair that it refuses, and reads again.
    absl::Status written = write_file(folder / (wanted.worker + ".key"), made->key, kForOwner);
    written.Update(write_file(folder / (wanted.worker + ".pem"), made->certificate, kForAll));
    if (!written.ok()) return written;
    std::cout << (folder / wanted.worker).string() << ".pem, .key\n";
  }
  return absl::OkStatus();
}

absl::Status show(const CertificateFlags& flags) {
  for (const std::string& path : flags.files) {
    const absl::StatusOr<std::string> text = read_file(path);
    if (!text.ok()) return text.status();
    const absl::StatusOr<std::string> described = describe_certificate(*text);
    if (!described.ok()) {
      return absl::Status(described.status().code(),
                          absl::StrCat(path, ": ", described.status().message()));
    }
    std::cout << path << "\n" << *described;
  }
  return absl::OkStatus();
}

}  // namespace

void add_certificate_commands(CLI::App& app, Command& command) {
  const auto kept = std::make_shared<CertificateFlags>();
  CertificateFlags& flags = *kept;
  CLI::App* const certs = app.add_subcommand("certs", "Certificates for mutual TLS");
  certs->require_subcommand(1);
  CLI::App* const starts = certs->add_subcommand("init", "Makes a job's authority");
  starts->add_option("FOLDER", flags.folder, "Gets ca.pem and ca.key")->required();
  starts->add_option("--job", flags.job, "WorkerOptions::job")->capture_default_str();
  starts->add_option("--days", flags.days, "How long it is valid")->capture_default_str();
  starts->add_flag("--from-token", flags.from_token,
                   "The one that workers with Credentials::job_tls() have, by the job's token");
  starts->callback([&command, kept] { command = [kept] { return init(*kept); }; });
  CLI::App* const issues = certs->add_subcommand("issue", "Makes certificates, or renews them");
  issues->add_option("FOLDER", flags.folder, "Of the authority")->required();
  issues
      ->add_option(
          "WORKER", flags.subjects,
          "NAME[,HOST]...: the worker's name, and names and addresses at which others look for it")
      ->required();
  issues->add_option("--days", flags.days, "How long they are valid")->capture_default_str();
  issues->callback([&command, kept] { command = [kept] { return issue(*kept); }; });
  CLI::App* const shows = certs->add_subcommand("show", "Says what certificates say");
  shows->add_option("FILE", flags.files, "In PEM")->required();
  shows->callback([&command, kept] { command = [kept] { return show(*kept); }; });
}

}  // namespace sinew::internal
