#include "sinew/examples/common/history_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace examples {
namespace {

[[noreturn]] void fail(const std::filesystem::path& file) {
  throw std::runtime_error("cannot write " + file.string() + ": " +
                           std::generic_category().message(errno));
}

/// Names of workers and numbers need no escapes.
std::string text(const std::string& name, const std::string& value) {
  return "\"" + name + "\": \"" + value + "\"";
}

std::string text_of(HistoryFile::Result result) {
  switch (result) {
    case HistoryFile::Result::kOk:
      return "ok";
    case HistoryFile::Result::kDidNotRun:
      return "did_not_run";
    case HistoryFile::Result::kUnknown:
      return "unknown";
  }
  return "";
}

std::string text_of(const HistoryFile::Versions& versions) {
  std::string list;
  for (const auto& [owner, version] : versions) {
    list += (list.empty() ? "\"" : ", \"") + owner + "\": " + std::to_string(version);
  }
  return "\"versions\": {" + list + "}";
}

}  // namespace

HistoryFile::HistoryFile(const std::filesystem::path& file, std::string worker, std::string target)
    : path_(file), worker_(std::move(worker)), target_(std::move(target)) {
  if (file.empty()) return;
  file_ = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file_ < 0) fail(path_);
}

HistoryFile::~HistoryFile() {
  if (file_ >= 0) close(file_);
}

void HistoryFile::add(const Step& step, Result result, const Versions& versions) {
  write("step", step.id,
        ", " + text("result", text_of(result)) + ", " + text("step", step.step) +
            ", \"run\": " + std::to_string(step.run) + ", " + text_of(versions));
}

void HistoryFile::add_increment(const std::string& id, Result result) {
  write("increment", id, ", " + text("result", text_of(result)));
}

void HistoryFile::add_applied(const std::string& id) { write("applied", id, ""); }

void HistoryFile::add_load(std::int64_t run, const Versions& versions) {
  write("load", "load" + std::to_string(run),
        ", " + text("result", text_of(Result::kOk)) + ", \"run\": " + std::to_string(run) + ", " +
            text_of(versions));
}

void HistoryFile::write(const std::string& kind, const std::string& id, const std::string& rest) {
  if (file_ < 0) return;
  const std::string line = "{" + text("kind", kind) + ", " + text("id", id) + ", " +
                           text("worker", worker_) + ", " + text("target", target_) + rest + "}\n";
  const std::lock_guard<std::mutex> lock(mutex_);
  if (::write(file_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) fail(path_);
}

}  // namespace examples
