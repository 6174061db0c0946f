#include "training.h"

#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>

#include "ATen/ATen.h"
#include "model.h"
#include "sinew/examples/common/device.h"
#include "sinew/examples/common/files.h"
#include "sinew/examples/common/progress_bar.h"
#include "sinew/examples/common/stop_signal.h"
#include "sinew/parallel/data_partitioner.h"
#include "torch/optim/sgd.h"
#include "torch/utils.h"

namespace mnist_sgd {
namespace {

using examples::LabelledImages;

// Of all training pictures.
constexpr double kMean = 0.1307;
constexpr double kDeviation = 0.3081;

// Steps after which the ranks ask each other whether to end.
constexpr std::int64_t kStopInterval = 20;

at::Tensor normalized(const at::Tensor& pixels) {
  return pixels.to(at::kFloat).div_(255).sub_(kMean).div_(kDeviation);
}

/// What each rank has a part of, and how large a part it takes at a time.
class Course {
 public:
  Course(const sinew::ProcessGroup& group, const examples::ImageFolder& data,
         const Options& options)
      : group_(group),
        options_(options),
        test_(share(data.test)),
        part_(own_part(data.train)),
        batch_(options.batch / group.size()),
        device_(examples::device_of(options.device)),
        optimizer_(model_.parameters(),
                   torch::optim::SGDOptions(options.lr).momentum(options.momentum)) {
    model_.to(device_);  // the optimizer has the same tensors
    // All begin with the same parameters. The tutorial leaves that to the seed.
    for (const at::Tensor& parameter : model_.parameters()) group.broadcast(parameter.detach(), 0);
  }

  std::int64_t steps() const {
    const std::int64_t all = (part_.count() + batch_ - 1) / batch_;
    return options_.max_steps > 0 ? std::min(all, options_.max_steps) : all;
  }

  /// The mean loss at this rank. None: a rank was asked to end, and all of them do.
  std::optional<double> run_epoch(std::int64_t epoch) {
    model_.train();
    const at::Tensor order = at::randperm(part_.count(), at::kLong);
    double loss_sum = 0;
    for (std::int64_t step = 0; step < steps(); ++step) {
      const std::int64_t first = step * batch_;
      const at::Tensor chosen = order.narrow(0, first, std::min(batch_, part_.count() - first));
      optimizer_.zero_grad();
      const at::Tensor pixels = part_.pixels.index_select(0, chosen).to(device_);
      const at::Tensor labels = part_.labels.index_select(0, chosen).to(device_);
      const at::Tensor loss = at::nll_loss(model_.forward(normalized(pixels)), labels);
      loss.backward();
      average_gradients(model_.parameters(), group_);
      optimizer_.step();
      loss_sum += loss.item<double>();
      show(epoch, step + 1);
      if (step % kStopInterval == 0 && is_one_asked_to_end()) return std::nullopt;
    }
    bar_.clear();
    return loss_sum / static_cast<double>(steps());
  }

  /// Over all ranks.
  double test_accuracy() {
    constexpr std::int64_t kBatch = 1000;
    const at::NoGradGuard no_grad;
    model_.eval();
    std::int64_t right = 0;
    for (std::int64_t first = 0; first < test_.count(); first += kBatch) {
      const std::int64_t count = std::min(kBatch, test_.count() - first);
      const at::Tensor pixels = test_.pixels.narrow(0, first, count).to(device_);
      const at::Tensor labels = test_.labels.narrow(0, first, count).to(device_);
      const at::Tensor output = model_.forward(normalized(pixels));
      right += output.argmax(1).eq(labels).sum().item<std::int64_t>();
    }
    const at::Tensor counts = at::tensor({right, test_.count()}, at::kLong);
    group_.all_reduce(counts);
    return counts[0].item<double>() / counts[1].item<double>();
  }

  std::vector<at::Tensor> parameters() const {
    std::vector<at::Tensor> copies;
    for (const at::Tensor& parameter : model_.parameters()) {
      copies.push_back(parameter.detach().clone());
    }
    return copies;
  }

  std::int64_t samples() const { return std::min(part_.count(), steps() * batch_) * group_.size(); }

 private:
  bool is_one_asked_to_end() const {
    const at::Tensor asked = at::tensor({examples::StopSignal::requested() ? 1 : 0}, at::kLong);
    group_.all_reduce(asked);
    return asked.item<std::int64_t>() > 0;
  }

  // The test needs no equal shares: nobody waits for anybody there.
  LabelledImages share(const LabelledImages& all) const {
    const at::Tensor own = at::arange(group_.rank(), all.count(), group_.size(), at::kLong);
    return {all.pixels.index_select(0, own), all.labels.index_select(0, own)};
  }

  LabelledImages own_part(const LabelledImages& all) const {
    const std::vector<double> equal(static_cast<std::size_t>(group_.size()), 1.0 / group_.size());
    const sinew::parallel::DataPartitioner partitioner(static_cast<std::size_t>(all.count()), equal,
                                                       static_cast<std::uint64_t>(options_.seed));
    const auto& part = partitioner.part(static_cast<std::size_t>(group_.rank()));
    // All ranks must make as many steps, and some may have a picture more.
    const auto end = part.begin() + all.count() / group_.size();
    const at::Tensor own = at::tensor(std::vector<std::int64_t>(part.begin(), end), at::kLong);
    return {all.pixels.index_select(0, own), all.labels.index_select(0, own)};
  }

  void show(std::int64_t epoch, std::int64_t step) {
    if (group_.rank() != 0) return;
    bar_.show(static_cast<double>(step) / static_cast<double>(steps()),
              "epoch " + std::to_string(epoch) + ", step " + std::to_string(step) + " of " +
                  std::to_string(steps()));
  }

  const sinew::ProcessGroup group_;
  const Options options_;
  const LabelledImages test_;
  const LabelledImages part_;
  const std::int64_t batch_;
  const at::Device device_;
  ConvNet model_;
  torch::optim::SGD optimizer_;
  examples::ProgressBar bar_;
};

/// Mean of what the ranks have.
double mean_of(double value, const sinew::ProcessGroup& group) {
  const at::Tensor sum = at::full({1}, value, at::kDouble);
  group.all_reduce(sum);
  return sum.item<double>() / group.size();
}

void check(const examples::ImageFolder& data, const Options& options,
           const sinew::ProcessGroup& group) {
  if (data.train.pixels.sizes().slice(1) != at::IntArrayRef({1, 28, 28})) {
    throw std::invalid_argument(options.data.string() + " has " + data.name +
                                ", and this network is for pictures of 28 times 28 grey pixels");
  }
  if (options.batch < group.size()) {
    throw std::invalid_argument("--batch " + std::to_string(options.batch) +
                                " gives nothing to some of the " + std::to_string(group.size()) +
                                " ranks");
  }
  if (data.train.count() < group.size()) {
    throw std::invalid_argument(options.data.string() + " has less pictures than there are ranks");
  }
}

}  // namespace

void average_gradients(const std::vector<at::Tensor>& parameters,
                       const sinew::ProcessGroup& group) {
  for (const at::Tensor& parameter : parameters) {
    if (!parameter.grad().defined()) continue;
    group.all_reduce(parameter.grad());
    parameter.grad().div_(group.size());
  }
}

TrainingResult train(const sinew::ProcessGroup& group, const examples::ImageFolder& data,
                     const Options& options, std::ostream& log) {
  check(data, options, group);
  torch::manual_seed(static_cast<std::uint64_t>(options.seed));
  Course course(group, data, options);
  TrainingResult result;
  result.curve.title = "Synchronous SGD on MNIST, " + std::to_string(group.size()) +
                       (group.size() == 1 ? " rank" : " ranks");
  result.curve.unit = "Loss; share of right answers";
  result.curve.names = {"training loss", "test accuracy"};
  for (std::int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    const auto start = std::chrono::steady_clock::now();
    const std::optional<double> own_loss = course.run_epoch(epoch);
    if (!own_loss) {
      result.stopped = true;
      break;
    }
    const double loss = *own_loss;
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    log << "Rank  " + std::to_string(group.rank()) + " , epoch  " + std::to_string(epoch) + " :  " +
               examples::number(loss) + "\n"
        << std::flush;
    result.test_accuracy = course.test_accuracy();
    const double mean_loss = mean_of(loss, group);
    result.curve.points.push_back(
        {static_cast<double>(epoch + 1), {mean_loss, result.test_accuracy}});
    if (group.rank() != 0) continue;
    const double rate = static_cast<double>(course.samples()) / took.count();
    log << "Epoch " + std::to_string(epoch) + ": test accuracy " +
               examples::fixed(result.test_accuracy, 4) + ", " + examples::fixed(rate, 0) +
               " samples/s\n"
        << std::flush;
    if (!options.output.empty()) {
      examples::write_curve(result.curve, options.output, "training_curve");
    }
  }
  result.parameters = course.parameters();
  return result;
}

}  // namespace mnist_sgd
