#include "sinew/rpc/membership/rendezvous_lines.h"

#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/worker_name.h"

namespace sinew::internal {
namespace {

constexpr absl::string_view kMagic = "sinew2";

// "sinew2 job name rank incarnation address instance", job and address in C escapes without blanks.
std::string escaped(absl::string_view text) {
  std::string out;
  for (const char c : absl::CEscape(text)) {
    c == ' ' ? out.append("\\040") : out.append(1, c);
  }
  return out.empty() ? "\\e" : out;
}

std::optional<std::string> unescaped(absl::string_view text) {
  std::string out;
  if (text == "\\e") return out;
  if (!absl::CUnescape(text, &out)) return std::nullopt;
  return out;
}

std::string format_line(const std::string& job, const RendezvousEntry& entry) {
  const WorkerInfo& worker = entry.member.worker;
  return absl::StrFormat("%s %s %s %d %016x %s %s\n", kMagic, escaped(job), worker.name,
                         worker.rank, worker.incarnation.value, escaped(entry.member.address),
                         to_string(entry.instance));
}

struct Line {
  std::string job;
  RendezvousEntry entry;
};

absl::StatusOr<Line> parse_line(absl::string_view text) {
  const std::vector<absl::string_view> fields = absl::StrSplit(text, ' ');
  if (fields.size() != 7 || fields[0] != kMagic) {
    return absl::InvalidArgumentError(absl::StrCat(
        "it does not have the seven fields of an entry, of which the first is '", kMagic, "'"));
  }
  const std::optional<std::string> job = unescaped(fields[1]);
  const std::optional<std::string> address = unescaped(fields[5]);
  if (!job || !address || address->empty() || printable(*address) != *address) {
    return absl::InvalidArgumentError("its job or its address cannot be understood");
  }
  Line line;
  line.job = *job;
  line.entry.member.address = *address;
  WorkerInfo& worker = line.entry.member.worker;
  worker.name = std::string(fields[2]);
  const absl::Status name = validate_worker_name(worker.name);
  if (!name.ok()) return name;
  if (!absl::SimpleAtoi(fields[3], &worker.rank) || worker.rank < 0) {
    return absl::InvalidArgumentError("its rank is no number from 0");
  }
  const bool is_hex = absl::SimpleHexAtoi(fields[4], &worker.incarnation.value);
  if (!is_hex || worker.incarnation.value == 0) {
    return absl::InvalidArgumentError("its incarnation is no hexadecimal number");
  }
  const absl::StatusOr<JobInstance> instance = parse_job_instance(fields[6]);
  if (!instance.ok()) return instance.status();
  line.entry.instance = *instance;
  return line;
}

}  // namespace

RendezvousLines parse_rendezvous_lines(const std::string& path, const std::string& job,
                                       absl::string_view text) {
  RendezvousLines parsed;
  int number = 0;
  for (const absl::string_view each : absl::StrSplit(text, '\n')) {
    ++number;
    if (each.empty()) continue;
    absl::StatusOr<Line> line = parse_line(each);
    if (!line.ok()) {
      parsed.warnings.push_back(absl::StrCat("line ", number, " of the rendezvous file '",
                                             printable(path),
                                             "' is ignored: ", line.status().message()));
    } else if (line->job != job) {
      parsed.foreign.emplace_back(each);
    } else {
      parsed.entries.push_back(std::move(line->entry));
    }
  }
  return parsed;
}

std::string format_rendezvous_lines(const std::string& job, const RendezvousLines& lines) {
  std::string text;
  for (const std::string& line : lines.foreign) absl::StrAppend(&text, line, "\n");
  for (const RendezvousEntry& entry : lines.entries) text += format_line(job, entry);
  return text;
}

}  // namespace sinew::internal
