#include "sinew/tests/process/churn_arguments.h"

#include <functional>
#include <stdexcept>

namespace churn {

Arguments read_arguments(int argc, char** argv, const std::set<std::string>& own) {
  Arguments arguments;
  sinew::WorkerOptions& worker = arguments.worker;
  worker.num_threads = 2;
  const auto milliseconds = [](const std::string& text) {
    return std::chrono::milliseconds(std::stol(text));
  };
  const std::map<std::string, std::function<void(const std::string&)>> known = {
      {"name", [&](const std::string& value) { worker.name = value; }},
      {"init", [&](const std::string& value) { worker.init_method = value; }},
      {"rank", [&](const std::string& value) { worker.rank = std::stoi(value); }},
      {"world", [&](const std::string& value) { worker.world_size = std::stoi(value); }},
      {"founds", [&](const std::string&) { worker.found_job = sinew::FoundJob::kNever; }},
      {"lease_ms", [&](const std::string& value) { worker.lease = milliseconds(value); }},
      {"pause_ms", [&](const std::string& value) { arguments.pause = milliseconds(value); }},
  };
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const auto setting = known.find(name);
    if (equals == std::string::npos || (setting == known.end() && own.count(name) == 0)) {
      throw std::invalid_argument("unknown argument '" + word + "'");
    }
    const std::string value = word.substr(equals + 1);
    if (setting != known.end()) {
      setting->second(value);
    } else {
      arguments.own[name] = value;
    }
  }
  return arguments;
}

}  // namespace churn
