#include "sinew/tests/support/certificates.h"

#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sinew/tests/support/processes.h"

namespace sinew::testing {
namespace {

void openssl(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "/usr/bin/openssl");
  run_program(arguments);
}

}  // namespace

Certificates::Certificates() {
  for (const std::string name : {"ca", "other-ca"}) {
    openssl({"req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
             "-keyout", path(name + ".key"), "-out", path(name + ".pem"), "-subj", "/CN=" + name,
             "-days", "2"});
  }
}

void Certificates::request(const std::string& name, const std::string& extensions) const {
  openssl({"req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout",
           path(name + ".key"), "-out", path(name + ".csr"), "-subj", "/CN=" + name});
  std::ofstream(path(name + ".ext")) << extensions << "\n";
}

void Certificates::sign(const std::string& name, const std::string& signer,
                        const Validity& validity) const {
  // `openssl x509` of OpenSSL 3.0 cannot set the first date; `openssl ca` wants a database.
  const std::string database = path(name + ".index");
  std::ofstream{database};
  std::ofstream(path(name + ".serial")) << "01\n";
  std::ofstream(path(name + ".cnf"))
      << "[ca]\ndefault_ca=d\n[d]\ndatabase=" << database << "\nserial=" << path(name + ".serial")
      << "\nnew_certs_dir=" << path("")
      << "\ndefault_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n";
  std::vector<std::string> command = {"ca",
                                      "-batch",
                                      "-notext",
                                      "-config",
                                      path(name + ".cnf"),
                                      "-in",
                                      path(name + ".csr"),
                                      "-cert",
                                      path(signer + ".pem"),
                                      "-keyfile",
                                      path(signer + ".key"),
                                      "-extfile",
                                      path(name + ".ext"),
                                      "-out",
                                      path(name + ".pem")};
  if (validity.from.empty()) {
    command.insert(command.end(), {"-days", "2"});
  } else {
    command.insert(command.end(), {"-startdate", validity.from, "-enddate", validity.until});
  }
  openssl(std::move(command));
}

TlsFiles Certificates::issue(const std::string& name, const std::string& names,
                             const std::string& signer, const Validity& validity) const {
  request(name, "subjectAltName=" + (names.empty() ? "DNS:" + name + ",IP:127.0.0.1" : names));
  sign(name, signer, validity);
  return {path("ca.pem"), path(name + ".pem"), path(name + ".key")};
}

void Certificates::issue_authority(const std::string& name, const std::string& signer,
                                   const Validity& validity) const {
  request(name, "basicConstraints=critical,CA:TRUE");
  sign(name, signer, validity);
}

std::string Certificates::bundle(const std::string& name,
                                 const std::vector<std::string>& files) const {
  std::ofstream bundle(path(name));
  for (const std::string& file : files) bundle << read(file);
  return path(name);
}

std::string Certificates::read(const std::string& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace sinew::testing
