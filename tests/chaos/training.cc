#include "sinew/tests/chaos/training.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"

namespace chaos {
namespace {

using Result = HistoryFile::Result;
using sinew::optim::StepReport;

constexpr char kFolder[] = "model";
constexpr std::chrono::seconds kFindTimeout{20};
constexpr std::chrono::milliseconds kPause{40};
constexpr std::int64_t kStepsPerCheckpoint = 20;

std::string id_of(std::int64_t index) { return absl::StrCat("step", index); }

sinew::optim::SgdOptions rate_of_one() {
  sinew::optim::SgdOptions sgd;
  sgd.lr = 1;
  return sgd;
}

/// Whole or not at all, also for who reads it after a kill.
void replace_file(const std::string& path, const std::string& text) {
  std::ofstream file(path + ".new");
  file << text;
  file.close();
  if (!file) throw std::runtime_error(path + " cannot be written");
  std::filesystem::rename(path + ".new", path);
}

}  // namespace

Training::Training(sinew::Worker worker, TrainingOptions options, churn::Tally& tally)
    : worker_(std::move(worker)),
      options_(std::move(options)),
      tally_(tally),
      thread_([this] { train(); }) {}

Training::~Training() { stop(); }

void Training::stop() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

void Training::conclude() {
  stop();
  // What befell the last step was over when this was asked for: once is enough.
  if (!is_clean_) begin_run();
  read_models();
}

void Training::train() {
  while (!stopping_ && worker_.is_running()) {
    try {
      begin_run();
      while (!stopping_ && attempts_ < kMostSteps) {
        std::this_thread::sleep_for(kPause);
        step();
        if (next_step_ % kStepsPerCheckpoint == 0) save();
      }
      save();
      finish_save();
    } catch (const sinew::RpcError& error) {
      is_clean_ = false;
      tally_.failed(error, "training");
      std::this_thread::sleep_for(kPause);
    }
  }
}

void Training::begin_run() {
  is_clean_ = false;
  saving_.reset();
  run_ = next_run();
  attempts_ = 0;
  rebind();
  // No step was ever made before that file was there.
  if (std::filesystem::exists(file("saved"))) {
    read_note(optimizer_.load(kFolder).note);
  } else {
    next_step_ = 1;
    for (const std::string& server : options_.servers) versions_[server] = 0;
    optimizer_.save(kFolder, note());
    replace_file(file("saved"), "");
  }
  history().load(run_, versions_);
  is_clean_ = true;
}

void Training::rebind() {
  models_.clear();
  std::vector<sinew::RRef<at::Tensor>> parameters;
  for (const std::string& server : options_.servers) {
    models_.push_back(worker_.find<Model>(server + "/model", kFindTimeout));
    parameters.push_back(models_.back().call<&Model::parameter>());
  }
  optimizer_ = optimizer_.valid()
                   ? optimizer_.rebind(parameters, rate_of_one())
                   : sinew::optim::DistributedOptimizer(worker_, parameters, rate_of_one());
}

void Training::step() {
  const std::int64_t index = run_ * kMostSteps + attempts_++;
  if (index >= Model::kSize) throw std::runtime_error("the models are used up");
  const std::string id = id_of(index);
  history().step(id, next_step_, run_, Result::kUnknown);
  is_clean_ = false;
  StepReport report;
  {
    const sinew::autograd::Context context(worker_);
    try {
      at::Tensor loss;
      for (const auto& model : models_) {
        const at::Tensor element = model.call<&Model::pick>(index);
        loss = loss.defined() ? loss + element : element;
      }
      sinew::autograd::backward(context, {loss});
    } catch (const sinew::RpcError&) {
      // Nobody was asked to step.
      history().step(id, next_step_, run_, Result::kDidNotRun);
      throw;
    }
    try {
      report = apply(context);
    } catch (const sinew::optim::PartialStep& error) {
      if (error.applied().empty() && error.unknown().empty()) {
        history().step(id, next_step_, run_, Result::kDidNotRun);
      }
      throw;
    }
  }
  for (const auto& owner : report.owners) {
    versions_[owner.owner.name] = static_cast<std::int64_t>(owner.version);
  }
  history().step(id, next_step_, run_, Result::kOk, versions_);
  is_clean_ = true;
  if (++next_step_ % 10 == 0) churn::tell(absl::StrCat("trained ", next_step_));
}

// Who did not answer in time, and lives, is asked once more.
StepReport Training::apply(const sinew::autograd::Context& context) {
  try {
    return optimizer_.step(context);
  } catch (const sinew::optim::PartialStep& error) {
    return optimizer_.repeat(error);
  }
}

void Training::save() {
  finish_save();
  saving_ = optimizer_.save_async(kFolder, note());
}

void Training::finish_save() {
  if (saving_) std::exchange(saving_, std::nullopt)->wait();
}

std::string Training::note() const {
  std::string note = absl::StrCat(next_step_);
  for (const std::string& server : options_.servers) {
    absl::StrAppend(&note, " ", versions_.at(server));
  }
  return note;
}

void Training::read_note(const std::string& note) {
  std::istringstream words(note);
  words >> next_step_;
  for (const std::string& server : options_.servers) words >> versions_[server];
  if (!words) throw std::runtime_error("the checkpoint's note is '" + note + "'");
}

std::int64_t Training::next_run() const {
  std::int64_t run = 0;
  std::ifstream(file("run")) >> run;
  replace_file(file("run"), absl::StrCat(run + 1));
  return run;
}

void Training::read_models() {
  std::map<std::string, std::vector<std::string>> applied;
  for (std::size_t i = 0; i < models_.size(); ++i) {
    std::vector<std::string>& ids = applied[options_.servers[i]];
    const at::Tensor value = models_[i].call<&Model::value>();
    const at::Tensor indices = value.nonzero().flatten();
    for (std::int64_t at = 0; at < indices.numel(); ++at) {
      const auto index = indices[at].item<std::int64_t>();
      const auto times = -value[index].item<float>();
      if (times < 0 || times != static_cast<float>(static_cast<std::int64_t>(times))) {
        tally_.wrong(absl::StrCat(options_.servers[i], " has ", -times, " at ", index));
      }
      for (float time = 0; time < times; ++time) ids.push_back(id_of(index));
    }
  }
  history().read(applied, versions_);
  models_.clear();
  optimizer_ = {};
}

}  // namespace chaos
