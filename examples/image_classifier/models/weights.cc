#include "weights.h"

#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "sinew/optim/state_dict.h"
#include "sinew/rpc/base/error.h"

namespace image_classifier {
namespace {

constexpr const char* kHead = "fc.";
constexpr const char* kCounter = "num_batches_tracked";
// A file of another model has hundreds of differences.
constexpr std::size_t kNamed = 5;

bool begins_with(const std::string& text, const std::string& start) {
  return text.rfind(start, 0) == 0;
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

std::string sizes_of(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.sizes();
  return text.str();
}

/// "; missing: 'a', 'b' and 3 more"
std::string listed(const std::string& what, const std::vector<std::string>& names) {
  if (names.empty()) return {};
  std::string text = "; " + what + ": ";
  for (std::size_t i = 0; i < names.size() && i < kNamed; ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  if (names.size() > kNamed) text += " and " + std::to_string(names.size() - kNamed) + " more";
  return text;
}

/// Checks that a file fits, and collects who gets what.
class Fitting {
 public:
  Fitting(sinew::optim::StateDict values, Head head) : values_(std::move(values)), head_(head) {}

  void add(const std::string& name, const at::Tensor& tensor) {
    const auto found = values_.find(name);
    if (head_ == Head::kNew && begins_with(name, kHead)) {
      if (found != values_.end()) values_.erase(found);
      return;
    }
    if (found == values_.end()) {
      if (!ends_with(name, kCounter)) missing_.push_back("'" + name + "'");
      return;
    }
    if (found->second.sizes() != tensor.sizes()) {
      misshapen_.push_back("'" + name + "' has " + sizes_of(found->second) + " and not " +
                           sizes_of(tensor));
      has_other_head_ = has_other_head_ || begins_with(name, kHead);
    }
    pairs_.emplace_back(tensor, found->second);
    values_.erase(found);
  }

  void copy(const std::filesystem::path& file) const {
    std::vector<std::string> unexpected;
    for (const auto& [name, value] : values_) unexpected.push_back("'" + name + "'");
    const std::string faults = listed("missing", missing_) + listed("unexpected", unexpected) +
                               listed("of another shape", misshapen_);
    if (!faults.empty()) {
      throw std::runtime_error("the weights in " + file.string() + " do not fit this model" +
                               faults +
                               (has_other_head_ ? " (--reset-head trains a new last layer)" : ""));
    }
    const at::NoGradGuard no_grad;
    // Into the tensors that there are: a DistributedDataParallel may know them.
    for (const auto& [to, from] : pairs_) at::Tensor(to).copy_(from);
  }

 private:
  sinew::optim::StateDict values_;
  const Head head_;
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs_;
  std::vector<std::string> missing_;
  std::vector<std::string> misshapen_;
  bool has_other_head_ = false;
};

sinew::optim::StateDict read(const std::filesystem::path& file) {
  try {
    return sinew::optim::load_state_dict(file.string());
  } catch (const sinew::RpcError& error) {
    throw std::runtime_error(error.what());
  }
}

}  // namespace

void load_weights(torch::nn::Module& network, const std::filesystem::path& file, Head head) {
  Fitting fitting(read(file), head);
  for (const auto& one : network.named_parameters()) fitting.add(one.key(), one.value());
  for (const auto& one : network.named_buffers()) fitting.add(one.key(), one.value());
  fitting.copy(file);
}

}  // namespace image_classifier
