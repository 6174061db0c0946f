#include "sinew/tests/chaos/history_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace chaos {
namespace {

constexpr char kModel[] = "model";

// Names and ids here have nothing that JSON would have escaped.
std::string quoted(std::string_view text) {
  return absl::StrCat("\"", absl::string_view(text.data(), text.size()), "\"");
}

std::string quoted(HistoryFile::Result result) {
  switch (result) {
    case HistoryFile::Result::kOk:
      return quoted("ok");
    case HistoryFile::Result::kDidNotRun:
      return quoted("did_not_run");
    case HistoryFile::Result::kUnknown:
      break;
  }
  return quoted("unknown");
}

std::string object(const Versions& versions) {
  return absl::StrCat("{",
                      absl::StrJoin(versions, ", ",
                                    [](std::string* out, const Versions::value_type& one) {
                                      absl::StrAppend(out, quoted(one.first), ": ", one.second);
                                    }),
                      "}");
}

}  // namespace

HistoryFile::HistoryFile(const std::string& path, std::string worker)
    : worker_(std::move(worker)),
      file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (file_ < 0) throw std::runtime_error(absl::StrCat(path, ": ", std::strerror(errno)));
}

HistoryFile::~HistoryFile() { ::close(file_); }

void HistoryFile::increment(const std::string& id, const std::string& target, Result result) {
  write("increment", target, {{"id", quoted(id)}, {"result", quoted(result)}});
}

void HistoryFile::applied(const std::string& id, const std::string& target) {
  write("applied", target, {{"id", quoted(id)}});
}

void HistoryFile::step(const std::string& id, std::int64_t number, std::int64_t run, Result result,
                       const Versions& versions) {
  Fields fields = {{"id", quoted(id)},
                   {"step", absl::StrCat(number)},
                   {"run", absl::StrCat(run)},
                   {"result", quoted(result)}};
  if (result == Result::kOk) fields.emplace_back("versions", object(versions));
  write("step", kModel, fields);
}

void HistoryFile::load(std::int64_t run, const Versions& versions) {
  write("load", kModel,
        {{"id", quoted(absl::StrCat("load", run))},
         {"run", absl::StrCat(run)},
         {"result", quoted(Result::kOk)},
         {"versions", object(versions)}});
}

void HistoryFile::read(const std::map<std::string, std::vector<std::string>>& applied,
                       const Versions& versions) {
  std::vector<std::string> owners;
  for (const auto& [owner, ids] : applied) {
    std::vector<std::string> texts;
    for (const std::string& id : ids) texts.push_back(quoted(id));
    owners.push_back(absl::StrCat(quoted(owner), ": [", absl::StrJoin(texts, ", "), "]"));
  }
  write("read", kModel,
        {{"applied", absl::StrCat("{", absl::StrJoin(owners, ", "), "}")},
         {"versions", object(versions)}});
}

void HistoryFile::write(std::string_view kind, std::string_view target, const Fields& fields) {
  std::string line = absl::StrCat("{\"worker\": ", quoted(worker_), ", \"kind\": ", quoted(kind),
                                  ", \"target\": ", quoted(target));
  for (const auto& [name, value] : fields) absl::StrAppend(&line, ", ", quoted(name), ": ", value);
  line += "}\n";
  const std::lock_guard<std::mutex> lock(mutex_);
  const ssize_t written = ::write(file_, line.data(), line.size());
  if (written != static_cast<ssize_t>(line.size())) {
    throw std::runtime_error(absl::StrCat("the history cannot be written: ",
                                          written < 0 ? std::strerror(errno) : "no room"));
  }
}

}  // namespace chaos
