#include "sinew/optim/internal/checkpoint_folder.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "sinew checkpoint 1";
constexpr const char* kData = ".pt";
constexpr const char* kManifest = ".manifest";

[[noreturn]] void throw_system(const std::string& doing, const std::string& path, int error) {
  const ErrorCode code = error == ENOENT   ? ErrorCode::kNotFound
                         : error == EACCES ? ErrorCode::kPermissionDenied
                         : error == ENOSPC ? ErrorCode::kResourceExhausted
                                           : ErrorCode::kInternal;
  throw RpcError(code, absl::StrFormat("cannot %s '%s': %s", doing, path, std::strerror(error)));
}

/// Makes what was written to a file or folder outlive a failure of the host.
void flush(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw_system("open", path, errno);
  const int failed = ::fsync(file) != 0 ? errno : 0;
  ::close(file);
  if (failed != 0) throw_system("flush", path, failed);
}

/// The file appears with all of its bytes, or not at all.
void write_file(const std::string& path, const std::string& bytes) {
  const std::string unfinished = path + ".unfinished";
  {
    std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    if (!file) throw_system("write", unfinished, errno);
  }
  flush(unfinished);
  if (std::rename(unfinished.c_str(), path.c_str()) != 0) throw_system("rename", path, errno);
}

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    if (context_ == nullptr || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1) {
      throw RpcError(ErrorCode::kInternal, "OpenSSL offers no SHA-256");
    }
  }
  Sha256& add(const char* bytes, std::size_t size) {
    EVP_DigestUpdate(context_.get(), bytes, size);
    return *this;
  }
  std::string digits() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int size = 0;
    EVP_DigestFinal_ex(context_.get(), digest.data(), &size);
    return absl::BytesToHexString({reinterpret_cast<const char*>(digest.data()), size});
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

std::string sha256_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> piece(std::size_t{1} << 20);
  Sha256 sum;
  while (file) {
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    sum.add(piece.data(), static_cast<std::size_t>(file.gcount()));
  }
  if (!file.eof()) throw_system("read", path, errno);
  return sum.digits();
}

fs::path checked_folder(const std::string& root, const std::string& name) {
  const fs::path relative(name);
  bool below = !name.empty() && relative.is_relative();
  for (const fs::path& part : relative) below = below && part != "..";
  if (!below) {
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrFormat("'%s' is no name of a folder for checkpoints: it must be "
                                   "relative to the root that the owners serve, without '..'",
                                   absl::CHexEscape(name)));
  }
  return fs::path(root) / relative;
}

}  // namespace

std::string CheckpointManifest::to_text() const {
  std::string text =
      absl::StrCat(kFormat, "\nworker: ", worker, "\nnumber: ", number, "\noptimizer: ", optimizer,
                   "\nnote: ", absl::CHexEscape(note), "\ndata_bytes: ", data_bytes,
                   "\ndata_sha256: ", data_sha256, "\n");
  for (const std::string& parameter : parameters) {
    absl::StrAppend(&text, "parameter: ", parameter, "\n");
  }
  return text;
}

CheckpointManifest CheckpointManifest::parse(const std::string& text, const std::string& file) {
  CheckpointManifest manifest;
  std::map<std::string, std::string> fields;
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  bool right = !lines.empty() && lines.front() == kFormat;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const std::pair<std::string, std::string> field =
        absl::StrSplit(lines[i], absl::MaxSplits(": ", 1));
    if (field.first == "parameter") {
      manifest.parameters.push_back(field.second);
    } else {
      fields.insert(field);
    }
  }
  manifest.worker = fields["worker"];
  manifest.optimizer = fields["optimizer"];
  manifest.data_sha256 = fields["data_sha256"];
  right = right && !manifest.data_sha256.empty() &&
          absl::SimpleAtoi(fields["number"], &manifest.number) &&
          absl::SimpleAtoi(fields["data_bytes"], &manifest.data_bytes) &&
          absl::CUnescape(fields["note"], &manifest.note);
  if (!right) {
    throw RpcError(ErrorCode::kDataLoss,
                   absl::StrFormat("'%s' is no manifest of a checkpoint of this version", file));
  }
  return manifest;
}

CheckpointFolder::CheckpointFolder(const std::string& root, const std::string& name,
                                   std::string worker)
    : folder_(checked_folder(root, name).string()), worker_(std::move(worker)) {}

std::string CheckpointFolder::path(std::uint64_t number, const char* ending) const {
  return absl::StrFormat("%s/%s.%06d%s", folder_, worker_, number, ending);
}

std::string CheckpointFolder::data_path(std::uint64_t number) const { return path(number, kData); }

std::vector<std::uint64_t> CheckpointFolder::numbers() const {
  std::vector<std::uint64_t> found;
  std::error_code error;
  fs::directory_iterator at(folder_, error);
  if (error == std::errc::no_such_file_or_directory) return found;
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    const std::string name = at->path().filename().string();
    absl::string_view rest = name;
    std::uint64_t number = 0;
    // Names of workers may have dots: what is left must be the number alone.
    if (absl::ConsumePrefix(&rest, absl::StrCat(worker_, ".")) &&
        absl::ConsumeSuffix(&rest, kManifest) && absl::SimpleAtoi(rest, &number)) {
      found.push_back(number);
    }
  }
  if (error) throw_system("list", folder_, error.value());
  std::sort(found.begin(), found.end());
  return found;
}

void CheckpointFolder::write(CheckpointManifest manifest, const std::string& data) const {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw_system("make the folder", folder_, error.value());
  const std::string manifest_path = path(manifest.number, kManifest);
  if (fs::exists(manifest_path)) {
    throw RpcError(ErrorCode::kAlreadyExists,
                   absl::StrFormat("'%s' is there already: does another optimizer save to this "
                                   "folder?",
                                   manifest_path));
  }
  manifest.worker = worker_;
  manifest.data_bytes = data.size();
  manifest.data_sha256 = Sha256().add(data.data(), data.size()).digits();
  write_file(data_path(manifest.number), data);
  write_file(manifest_path, manifest.to_text());
  flush(folder_);
}

CheckpointManifest CheckpointFolder::read_manifest(std::uint64_t number) const {
  const std::string file = path(number, kManifest);
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw_system("open", file, errno);
  std::ostringstream text;
  text << stream.rdbuf();
  CheckpointManifest manifest = CheckpointManifest::parse(text.str(), file);
  std::error_code error;
  const std::uintmax_t size = fs::file_size(data_path(number), error);
  if (error) throw_system("read", data_path(number), error.value());
  if (size != manifest.data_bytes) {
    throw RpcError(ErrorCode::kDataLoss,
                   absl::StrFormat("'%s' has %d bytes, but its manifest says %d", data_path(number),
                                   size, manifest.data_bytes));
  }
  return manifest;
}

void CheckpointFolder::check_data(const CheckpointManifest& manifest) const {
  const std::string path = data_path(manifest.number);
  // LibTorch notices most damage itself, but not all, and leaks memory then.
  if (sha256_of_file(path) == manifest.data_sha256) return;
  throw RpcError(
      ErrorCode::kDataLoss,
      absl::StrFormat("'%s' is damaged: its SHA-256 is not the one in its manifest", path));
}

void CheckpointFolder::remove_before(std::uint64_t number) const {
  for (const std::uint64_t old : numbers()) {
    if (old >= number) break;
    std::error_code error;
    // The manifest first: what is left of a part that is half removed is none.
    fs::remove(path(old, kManifest), error);
    if (!error) fs::remove(data_path(old), error);
    if (error) throw_system("remove", data_path(old), error.value());
  }
}

}  // namespace sinew::internal
