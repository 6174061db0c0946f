#include "learner/checkpoint_folder.h"

#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "absl/strings/str_format.h"
#include "sinew/examples/common/files.h"

namespace actor_learner {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "checkpoint-";
constexpr const char* kWhole = ".ckpt";
constexpr const char* kDamaged = ".damaged";

/// The first line of a file: all that is needed to know whether the rest is whole.
std::string header_of(std::string_view content) {
  const auto sum = crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size());
  return absl::StrFormat("actor_learner checkpoint, %d bytes, crc32 %08x\n", content.size(),
                         static_cast<std::uint32_t>(sum));
}

/// What follows the header; nothing unless it is what the header says.
std::optional<std::string> content_of(const std::string& bytes) {
  const std::size_t end = bytes.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string content = bytes.substr(end + 1);
  if (bytes.compare(0, end + 1, header_of(content)) != 0) return std::nullopt;
  return content;
}

}  // namespace

fs::path CheckpointFolder::path(std::int64_t number, const std::string& ending) const {
  return folder_ / absl::StrFormat("%s%06d%s", kPrefix, number, ending);
}

std::vector<std::int64_t> CheckpointFolder::numbers(const std::string& ending) const {
  std::vector<std::int64_t> found;
  if (!fs::exists(folder_)) return found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
    if (!ending.empty() && entry.path().extension() != ending) continue;
    const std::string name = entry.path().stem().string();
    if (name.compare(0, kPrefix.size(), kPrefix) != 0) continue;
    std::int64_t number = 0;
    const char* last = name.data() + name.size();
    const auto parsed = std::from_chars(name.data() + kPrefix.size(), last, number);
    if (parsed.ec == std::errc() && parsed.ptr == last) found.push_back(number);
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::int64_t CheckpointFolder::next_number() const {
  const std::vector<std::int64_t> all = numbers("");
  return all.empty() ? 1 : all.back() + 1;
}

std::optional<CheckpointFolder::Checkpoint> CheckpointFolder::newest(
    const std::function<void(const std::string&)>& tell) const {
  std::vector<std::int64_t> left = numbers(kWhole);
  for (; !left.empty(); left.pop_back()) {
    const fs::path file = path(left.back(), kWhole);
    std::optional<std::string> content = content_of(examples::read_file(file));
    if (content) return Checkpoint{file, *std::move(content)};
    const fs::path aside = path(left.back(), kDamaged);
    fs::rename(file, aside);
    tell(file.string() + " is damaged: it is not as long as its first line says, or its checksum " +
         "is another one; it is called " + aside.filename().string() +
         " now, and the one before it is used");
  }
  if (numbers(kDamaged).empty()) return std::nullopt;
  throw std::runtime_error("there are only damaged checkpoints in " + folder_.string() +
                           ": remove them to begin anew, or name another folder");
}

void CheckpointFolder::save(const std::string& content) const {
  examples::replace_file(path(next_number(), kWhole), header_of(content) + content);
  std::vector<std::int64_t> whole = numbers(kWhole);
  for (std::size_t i = 0; i + kKept < whole.size(); ++i) fs::remove(path(whole[i], kWhole));
}

}  // namespace actor_learner
