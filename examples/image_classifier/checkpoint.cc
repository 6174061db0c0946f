#include "checkpoint.h"

#include <sstream>
#include <stdexcept>
#include <utility>

#include "ATen/ATen.h"
#include "first_rank.h"
#include "sinew/examples/common/archives.h"
#include "sinew/examples/common/files.h"
#include "torch/nn/module.h"

namespace image_classifier {
namespace {

using examples::load_part;
using examples::read;
using examples::read_tensor;
using examples::save_part;
using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

constexpr const char* kLatest = "latest.pt";
// To be raised when what is in a file changes.
constexpr std::int64_t kFormat = 2;

/// A row for each point: the epoch, and the values.
at::Tensor to_tensor(const std::vector<examples::TrainingCurve::Point>& curve) {
  std::vector<at::Tensor> rows;
  for (const auto& point : curve) {
    std::vector<double> row = {point.at};
    row.insert(row.end(), point.values.begin(), point.values.end());
    rows.push_back(at::tensor(row, at::kDouble));
  }
  return rows.empty() ? at::zeros({0, 1}, at::kDouble) : at::stack(rows);
}

std::vector<examples::TrainingCurve::Point> to_curve(const at::Tensor& tensor) {
  const at::Tensor rows = tensor.to(at::kDouble).contiguous();
  std::vector<examples::TrainingCurve::Point> curve;
  for (std::int64_t i = 0; i < rows.size(0); ++i) {
    const double* row = rows[i].data_ptr<double>();
    curve.push_back({row[0], std::vector<double>(row + 1, row + rows.size(1))});
  }
  return curve;
}

Progress read_progress(InputArchive& archive) {
  Progress progress;
  progress.epoch = read<std::int64_t>(archive, "epoch");
  progress.round = read<std::int64_t>(archive, "round");
  progress.best_top = read<double>(archive, "best_top");
  progress.train = to_metrics(read_tensor(archive, "train"));
  progress.curve = to_curve(read_tensor(archive, "curve"));
  return progress;
}

/// Into the tensors that there are. Module::load() would put others in their place, which a
/// DistributedDataParallel knows nothing of.
void load_in_place(InputArchive& archive, const std::string& key, torch::nn::Module& module) {
  const std::shared_ptr<torch::nn::Module> read = module.clone();
  load_part(archive, key, *read);
  const at::NoGradGuard no_grad;
  const auto copy = [](const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
  };
  copy(module.parameters(), read->parameters());
  copy(module.buffers(), read->buffers());
}

at::Tensor to_tensor(const std::string& bytes) {
  return at::tensor(
      at::ArrayRef<std::uint8_t>(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()),
      at::kByte);
}

std::string to_bytes(const at::Tensor& tensor) {
  const at::Tensor bytes = tensor.to(at::kByte).contiguous();
  return {reinterpret_cast<const char*>(bytes.data_ptr<std::uint8_t>()),
          static_cast<std::size_t>(bytes.numel())};
}

/// The first line that differs.
std::string difference(const std::string& saved, const std::string& now) {
  std::istringstream saved_lines(saved);
  std::istringstream now_lines(now);
  std::string was;
  std::string is;
  while (std::getline(saved_lines, was) && std::getline(now_lines, is)) {
    if (was != is) return "'" + was + "', and now it is '" + is + "'";
  }
  return "other settings";
}

}  // namespace

CheckpointFolder::CheckpointFolder(std::filesystem::path folder, std::string settings)
    : folder_(std::move(folder)), settings_(std::move(settings)) {}

void CheckpointFolder::save(const std::string& name, const torch::nn::Module& module,
                            const std::string& optimizer, const Progress& progress) const {
  OutputArchive archive;
  archive.write("format", c10::IValue(kFormat));
  archive.write("settings", c10::IValue(settings_));
  archive.write("epoch", c10::IValue(progress.epoch));
  archive.write("round", c10::IValue(progress.round));
  archive.write("best_top", c10::IValue(progress.best_top));
  archive.write("train", to_tensor(progress.train), /*is_buffer=*/true);
  archive.write("curve", to_tensor(progress.curve), /*is_buffer=*/true);
  save_part(archive, "module", module);
  archive.write("optimizer", to_tensor(optimizer), /*is_buffer=*/true);
  examples::replace_file(folder_ / name, examples::to_bytes(archive));
}

std::optional<Progress> CheckpointFolder::load(torch::nn::Module& module, Sgd& optimizer,
                                               const sinew::ProcessGroup& group) const {
  const std::filesystem::path file = folder_ / kLatest;
  std::string bytes;
  if (group.rank() == 0 && std::filesystem::exists(file)) {
    bytes = examples::read_file(file);
    if (bytes.empty()) throw std::runtime_error(file.string() + " is empty");
  }
  bytes = from_first_rank(std::move(bytes), group);
  if (bytes.empty()) return std::nullopt;
  try {
    InputArchive archive;
    archive.load_from(bytes.data(), bytes.size());
    if (read<std::int64_t>(archive, "format") != kFormat) {
      throw std::runtime_error("it is of another version of this program");
    }
    const auto saved = read<std::string>(archive, "settings");
    if (saved != settings_) {
      throw std::runtime_error("it was made with " + difference(saved, settings_));
    }
    load_in_place(archive, "module", module);
    optimizer.load(to_bytes(read_tensor(archive, "optimizer")));
    return read_progress(archive);
  } catch (const std::exception& error) {
    // LibTorch's texts go on with where in its sources they come from.
    const std::string text = error.what();
    throw std::runtime_error("cannot go on from " + file.string() + ": " +
                             text.substr(0, text.find('\n')));
  }
}

}  // namespace image_classifier
