// A worker of tests/chaos/run: it works all the time, notes what it asks of others and what they
// answer, and starts again when it was evicted. What happens is told on stdout, as churn_worker
// does.
//
// Nobody has its standard input, so it does what the file `command` in its folder says, as soon as
// that is another line than before: a number, a worker's name or "all", and a command of
// churn::Life::answer(). The answer is a line that begins with the number.
//
// Arguments: name=, init=, lease_ms=, pause_ms=, folder=, servers=A,B; serves=model for those;
// trains=yes for the one that steps them; rank=0 for the founder.

#include <chrono>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sinew/tests/chaos/chaos_methods.h"
#include "sinew/tests/chaos/counting.h"
#include "sinew/tests/chaos/training.h"
#include "sinew/tests/process/churn_arguments.h"
#include "sinew/tests/process/churn_life.h"
#include "sinew/tests/process/churn_methods.h"
#include "sinew/tests/process/churn_work.h"

namespace {

struct Settings {
  sinew::WorkerOptions options;
  std::chrono::milliseconds pause{};
  std::string folder;
  std::vector<std::string> servers;
  bool serves = false;
  bool trains = false;
};

Settings parse(int argc, char** argv) {
  churn::Arguments arguments =
      churn::read_arguments(argc, argv, {"folder", "servers", "serves", "trains"});
  arguments.worker.methods = chaos::methods();
  arguments.worker.credentials = sinew::Credentials::insecure_on_any_network();
  std::map<std::string, std::string>& own = arguments.own;
  return {arguments.worker,
          arguments.pause,
          own["folder"],
          absl::StrSplit(own["servers"], ','),
          own["serves"] == "model",
          own["trains"] == "yes"};
}

/// All that a worker of this job does.
class Work final : public churn::Activity {
 public:
  Work(const sinew::Worker& worker, const Settings& settings, churn::Tally& tally)
      : worker_(worker),
        references_(worker, settings.pause, tally),
        counting_(worker, settings.pause, tally) {
    if (settings.trains) {
      training_ = std::make_unique<chaos::Training>(
          worker, chaos::TrainingOptions{settings.servers, settings.folder}, tally);
    }
    const auto mine = chaos::belongings();
    worker_.publish("counter", mine->counter);
    worker_.publish("diary", mine->diary);
    if (settings.serves) {
      sinew::optim::serve_checkpoints(worker_, settings.folder + "/checkpoints");
      worker_.publish("model", mine->model);
    }
  }
  void conclude() override {
    if (training_ != nullptr) training_->conclude();
    worker_.unpublish("counter");
    worker_.unpublish("diary");
    worker_.unpublish("model");
  }

 private:
  const sinew::Worker worker_;
  churn::Work references_;
  chaos::Counting counting_;
  std::unique_ptr<chaos::Training> training_;
};

churn::LifeOptions life_of(const Settings& settings) {
  // Of all lives, as the process.
  static churn::Tally& tally = *new churn::Tally();
  churn::LifeOptions life;
  life.worker = settings.options;
  life.tally = &tally;
  life.begin_anew = [] {
    churn::forget();
    chaos::begin_anew();
  };
  life.make_work = [settings](const sinew::Worker& worker) {
    return std::make_unique<Work>(worker, settings, tally);
  };
  life.give_up = [] { churn::memory()->close(); };
  return life;
}

void obey(churn::Life& life, const std::string& name, const std::string& file) {
  std::string last;
  while (true) {
    std::string line;
    std::getline(std::ifstream(file), line);
    if (line.empty() || line == last) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      continue;
    }
    last = line;
    std::istringstream words(line);
    std::string number;
    std::string whom;
    words >> number >> whom;
    if (whom != name && whom != "all") continue;
    std::cout << absl::StrCat(number, " ", life.answer(words), "\n") << std::flush;
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Settings settings = parse(argc, argv);
    // The process's own: one that was killed may have been in the middle of a line.
    const auto now = std::chrono::system_clock::now().time_since_epoch().count();
    chaos::set_history(std::make_unique<chaos::HistoryFile>(
        absl::StrCat(settings.folder, "/history/", settings.options.name, ".", now),
        settings.options.name));
    obey(*new churn::Life(life_of(settings)), settings.options.name, settings.folder + "/command");
  } catch (const std::exception& error) {
    std::cerr << "chaos_worker: " << error.what() << std::endl;
    std::_Exit(2);
  }
}
