#include "sinew/optim/internal/checkpoint_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sinew/optim/internal/durable_file.h"
#include "sinew/rpc/base/error.h"

namespace sinew::internal {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "sinew checkpoint 2";
// Its checkpoints are whole when the numbers agree, as its parts have no number of a save.
constexpr const char* kFormerFormat = "sinew checkpoint 1";
constexpr const char* kData = ".pt";
constexpr const char* kManifest = ".manifest";

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
  fs::path folder = root;
  for (const fs::path& part : relative) {
    folder /= part;
    std::error_code unknown;
    if (!fs::is_symlink(fs::symlink_status(folder, unknown))) continue;
    throw RpcError(ErrorCode::kInvalidArgument,
                   absl::StrFormat("'%s' is a symbolic link, and those below the root that the "
                                   "owners serve are not followed: name what it leads to there",
                                   folder.string()));
  }
  return folder;
}

// A file of another user is not loaded. Where a file server maps the files of a user to another
// user, the folder is mapped too.
void check_owner(const std::string& path, const std::string& folder) {
  struct stat about = {};
  struct stat around = {};
  if (::lstat(path.c_str(), &about) != 0) throw_file_error("read", path, errno);
  if (::stat(folder.c_str(), &around) != 0) throw_file_error("look at", folder, errno);
  if (!S_ISREG(about.st_mode)) {
    throw RpcError(ErrorCode::kFailedPrecondition,
                   absl::StrFormat("'%s' is no regular file", path));
  }
  if (about.st_uid == ::geteuid() || about.st_uid == 0 || about.st_uid == around.st_uid) return;
  throw RpcError(ErrorCode::kPermissionDenied,
                 absl::StrFormat("'%s' belongs to user %d, and this process runs as user %d: if it "
                                 "is to be trusted, chown it",
                                 path, about.st_uid, ::geteuid()));
}

/// "65536 17"
std::optional<optim::GradScalerState> parse_scaler(const std::string& text) {
  optim::GradScalerState state;
  const std::pair<std::string, std::string> words = absl::StrSplit(text, ' ');
  if (!absl::SimpleAtod(words.first, &state.scale) ||
      !absl::SimpleAtoi(words.second, &state.growth_tracker)) {
    return std::nullopt;
  }
  return state;
}

}  // namespace

std::string CheckpointManifest::to_text() const {
  std::string text =
      absl::StrCat(kFormat, "\nworker: ", worker, "\nnumber: ", number,
                   "\nsave: ", absl::Hex(save, absl::kZeroPad16), "\noptimizer: ", optimizer,
                   "\nnote: ", absl::CHexEscape(notes.note), "\ndata_bytes: ", data_bytes,
                   "\ndata_sha256: ", data_sha256, "\n");
  if (notes.grad_scaler) {
    // 17 digits: as it is.
    text += absl::StrFormat("grad_scaler: %.17g %d\n", notes.grad_scaler->scale,
                            notes.grad_scaler->growth_tracker);
  }
  for (const std::string& parameter : parameters) {
    absl::StrAppend(&text, "parameter: ", parameter, "\n");
  }
  for (const std::string& tensor : kept) absl::StrAppend(&text, "kept: ", tensor, "\n");
  return text;
}

CheckpointManifest CheckpointManifest::parse(const std::string& text, const std::string& file) {
  CheckpointManifest manifest;
  std::map<std::string, std::string> fields;
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  const bool is_former = !lines.empty() && lines.front() == kFormerFormat;
  bool right = is_former || (!lines.empty() && lines.front() == kFormat);
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const std::pair<std::string, std::string> field =
        absl::StrSplit(lines[i], absl::MaxSplits(": ", 1));
    if (field.first == "parameter") {
      manifest.parameters.push_back(field.second);
    } else if (field.first == "kept") {
      manifest.kept.push_back(field.second);
    } else {
      fields.insert(field);
    }
  }
  manifest.worker = fields["worker"];
  manifest.optimizer = fields["optimizer"];
  manifest.data_sha256 = fields["data_sha256"];
  right = right && !manifest.data_sha256.empty() &&
          absl::SimpleAtoi(fields["number"], &manifest.number) &&
          (is_former || absl::SimpleHexAtoi(fields["save"], &manifest.save)) &&
          absl::SimpleAtoi(fields["data_bytes"], &manifest.data_bytes) &&
          absl::CUnescape(fields["note"], &manifest.notes.note);
  if (fields.count("grad_scaler") > 0) {
    manifest.notes.grad_scaler = parse_scaler(fields["grad_scaler"]);
    right = right && manifest.notes.grad_scaler.has_value();
  }
  if (!right) {
    throw RpcError(ErrorCode::kDataLoss,
                   absl::StrFormat("'%s' is no manifest of a checkpoint of this version", file));
  }
  return manifest;
}

std::string CheckpointManifest::difference(const CheckpointManifest& mine) const {
  std::string fault;
  if (optimizer != mine.optimizer) {
    fault = absl::StrFormat("it is of %s, and this optimizer is %s", optimizer, mine.optimizer);
  } else if (parameters.size() != mine.parameters.size()) {
    fault = absl::StrFormat("it has %d parameters, and this optimizer has %d here",
                            parameters.size(), mine.parameters.size());
  }
  for (std::size_t i = 0; fault.empty() && i < mine.parameters.size(); ++i) {
    if (parameters[i] == mine.parameters[i]) continue;
    fault = absl::StrFormat("parameter %d (group, type, sizes) is '%s' there, and '%s' here", i,
                            parameters[i], mine.parameters[i]);
  }
  if (fault.empty() && kept != mine.kept) {
    fault = absl::StrFormat(
        "in addition to the parameters it has the tensors [%s], and this optimizer has [%s] here: "
        "see DistributedOptimizer::keep()",
        absl::StrJoin(kept, ", "), absl::StrJoin(mine.kept, ", "));
  }
  return fault;
}

void CheckpointManifest::check_fits(const CheckpointManifest& mine, const std::string& path) const {
  const std::string fault = difference(mine);
  if (fault.empty()) return;
  throw RpcError(ErrorCode::kFailedPrecondition,
                 absl::StrFormat("checkpoint '%s' does not fit: %s", path, fault));
}

CheckpointFolder::CheckpointFolder(const std::string& root, const std::string& name,
                                   std::string worker)
    : folder_(checked_folder(root, name).string()), worker_(std::move(worker)) {}

std::string CheckpointFolder::path(std::uint64_t number, const char* ending) const {
  return absl::StrFormat("%s/%s.%06d%s", folder_, worker_, number, ending);
}

std::string CheckpointFolder::data_path(std::uint64_t number) const { return path(number, kData); }

std::vector<CheckpointFolder::Entry> CheckpointFolder::entries() const {
  std::vector<Entry> found;
  std::error_code error;
  fs::directory_iterator at(folder_, error);
  if (error == std::errc::no_such_file_or_directory) return found;
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    const std::string name = at->path().filename().string();
    absl::string_view rest = name;
    // Names of workers may have dots: what is behind them must be a number.
    if (!absl::ConsumePrefix(&rest, absl::StrCat(worker_, "."))) continue;
    const absl::string_view digits = rest.substr(0, rest.find_first_not_of("0123456789"));
    Entry entry;
    if (digits.empty() || !absl::SimpleAtoi(digits, &entry.number)) continue;
    entry.path = at->path().string();
    entry.ending = std::string(rest.substr(digits.size()));
    std::error_code unknown;
    if (fs::is_regular_file(at->symlink_status(unknown))) found.push_back(std::move(entry));
  }
  if (error) throw_file_error("list", folder_, error.value());
  return found;
}

CheckpointParts CheckpointFolder::parts() const {
  CheckpointParts parts;
  for (const Entry& entry : entries()) {
    parts.last = std::max(parts.last, entry.number);
    if (entry.ending != kManifest) continue;
    try {
      const CheckpointManifest manifest = read_manifest(entry.number);
      parts.whole.push_back({manifest.number, manifest.save});
    } catch (const RpcError& error) {
      // One that is damaged, or has just been removed, is no part that could be loaded.
      if (error.code() != ErrorCode::kDataLoss && error.code() != ErrorCode::kNotFound) throw;
    }
  }
  std::sort(parts.whole.begin(), parts.whole.end());
  return parts;
}

void CheckpointFolder::write(CheckpointManifest manifest, const std::string& data) const {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw_file_error("make the folder", folder_, error.value());
  remove_leftovers();
  manifest.worker = worker_;
  manifest.data_bytes = data.size();
  manifest.data_sha256 = sha256(data);
  DurableFile data_file(data_path(manifest.number), data);
  if (sha256_of_file(data_file.unfinished()) != manifest.data_sha256) {
    throw RpcError(
        ErrorCode::kDataLoss,
        absl::StrFormat("'%s' does not have what was written to it", data_file.unfinished()));
  }
  DurableFile manifest_file(path(manifest.number, kManifest), manifest.to_text());
  data_file.publish();
  try {
    manifest_file.publish();
  } catch (...) {
    data_file.withdraw();
    throw;
  }
  flush_file(folder_);
}

CheckpointManifest CheckpointFolder::read_manifest(std::uint64_t number) const {
  const std::string file = path(number, kManifest);
  check_owner(file, folder_);
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw_file_error("open", file, errno);
  std::ostringstream text;
  text << stream.rdbuf();
  CheckpointManifest manifest = CheckpointManifest::parse(text.str(), file);
  if (manifest.number != number) {
    throw RpcError(ErrorCode::kDataLoss,
                   absl::StrFormat("'%s' is the manifest of number %d", file, manifest.number));
  }
  if (manifest.worker != worker_) {
    throw RpcError(ErrorCode::kDataLoss, absl::StrFormat("'%s' is the manifest of worker '%s'",
                                                         file, printable(manifest.worker, 256)));
  }
  std::error_code error;
  const std::uintmax_t size = fs::file_size(data_path(number), error);
  if (error) throw_file_error("read", data_path(number), error.value());
  if (size != manifest.data_bytes) {
    throw RpcError(ErrorCode::kDataLoss,
                   absl::StrFormat("'%s' has %d bytes, but its manifest says %d", data_path(number),
                                   size, manifest.data_bytes));
  }
  return manifest;
}

void CheckpointFolder::check_data(const CheckpointManifest& manifest) const {
  const std::string path = data_path(manifest.number);
  check_owner(path, folder_);
  // LibTorch notices most damage itself, but not all, and leaks memory then.
  if (sha256_of_file(path) == manifest.data_sha256) return;
  throw RpcError(
      ErrorCode::kDataLoss,
      absl::StrFormat("'%s' is damaged: its SHA-256 is not the one in its manifest", path));
}

void CheckpointFolder::remove_before(std::uint64_t number) const {
  std::vector<Entry> old = entries();
  old.erase(std::remove_if(old.begin(), old.end(),
                           [&](const Entry& entry) {
                             return entry.number >= number ||
                                    (entry.ending != kData && entry.ending != kManifest) ||
                                    DurableFile::is_under_way(entry.path);
                           }),
            old.end());
  // Manifests first: what is left of a part that is half removed is none.
  std::stable_partition(old.begin(), old.end(),
                        [](const Entry& entry) { return entry.ending == kManifest; });
  for (const Entry& entry : old) {
    std::error_code error;
    fs::remove(entry.path, error);
    if (error) throw_file_error("remove", entry.path, error.value());
  }
}

void CheckpointFolder::remove_leftovers() const {
  const std::vector<Entry> all = entries();
  for (const Entry& entry : all) {
    const bool is_unfinished = absl::EndsWith(entry.ending, DurableFile::kUnfinished);
    const bool is_alone =
        entry.ending == kData && !fs::exists(fs::symlink_status(path(entry.number, kManifest)));
    if (!(is_unfinished || is_alone) || DurableFile::is_under_way(entry.path)) continue;
    // What cannot be removed does no harm.
    std::error_code ignored;
    fs::remove(entry.path, ignored);
  }
}

}  // namespace sinew::internal
