#include "learner/replay_buffer.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <stdexcept>
#include <string>

#include "ATen/ATen.h"
#include "sinew/examples/common/archives.h"

namespace actor_learner {
namespace {

/// The columns, with their names and what a row of them has: 0 for a number.
struct Column {
  const char* name;
  at::Tensor Transitions::*tensor;
  std::int64_t width;
};
constexpr std::array<Column, 5> kColumns = {{
    {"observations", &Transitions::observations, kObservationSize},
    {"actions", &Transitions::actions, kActionSize},
    {"rewards", &Transitions::rewards, 0},
    {"next_observations", &Transitions::next_observations, kObservationSize},
    {"terminals", &Transitions::terminals, 0},
}};

std::vector<std::int64_t> sizes_of(const Column& column, std::int64_t rows) {
  if (column.width == 0) return {rows};
  return {rows, column.width};
}

/// The same rows of each column.
template <class Function>
Transitions each_column(const Transitions& from, Function function) {
  Transitions result;
  for (const Column& column : kColumns) result.*column.tensor = function(from.*column.tensor);
  return result;
}

void check(const Column& column, const at::Tensor& tensor, std::int64_t rows) {
  const std::vector<std::int64_t> sizes = sizes_of(column, rows);
  const bool right = tensor.defined() && tensor.scalar_type() == at::kFloat &&
                     tensor.layout() == at::kStrided && tensor.device().is_cpu() &&
                     tensor.sizes() == at::IntArrayRef(sizes);
  if (!right) {
    std::ostringstream text;
    text << "the " << column.name << " of transitions must be floats " << at::IntArrayRef(sizes);
    if (tensor.defined()) text << ", and are " << tensor.dtype() << " " << tensor.sizes();
    throw std::invalid_argument(text.str());
  }
  if (!tensor.isfinite().all().item<bool>()) {
    throw std::invalid_argument("the " + std::string(column.name) +
                                " of transitions have a number that is not finite");
  }
}

}  // namespace

void check(const Transitions& transitions) {
  const at::Tensor& rewards = transitions.rewards;
  const std::int64_t rows = rewards.defined() && rewards.dim() == 1 ? rewards.size(0) : 0;
  for (const Column& column : kColumns) check(column, transitions.*column.tensor, rows);
}

ReplayBuffer::ReplayBuffer(std::int64_t capacity) : capacity_(capacity) {
  if (capacity < 1) {
    throw std::invalid_argument("a replay buffer for " + std::to_string(capacity) +
                                " transitions holds none");
  }
  for (const Column& column : kColumns) {
    rows_.*column.tensor = at::zeros(sizes_of(column, capacity), at::kFloat);
  }
}

void ReplayBuffer::add(const Transitions& transitions) {
  check(transitions);
  // Of more than fit only the last ones would stay.
  const std::int64_t skipped = std::max<std::int64_t>(transitions.steps() - capacity_, 0);
  const std::int64_t count = transitions.steps() - skipped;
  const std::int64_t until_end = std::min(count, capacity_ - next_);
  for (const Column& column : kColumns) {
    const at::Tensor& to = rows_.*column.tensor;
    const at::Tensor& from = transitions.*column.tensor;
    to.narrow(0, next_, until_end).copy_(from.narrow(0, skipped, until_end));
    to.narrow(0, 0, count - until_end)
        .copy_(from.narrow(0, skipped + until_end, count - until_end));
  }
  next_ = (next_ + count) % capacity_;
  size_ = std::min(size_ + count, capacity_);
}

Transitions ReplayBuffer::sample(std::int64_t count, at::Generator& random) const {
  if (size_ == 0) throw std::logic_error("there are no transitions to draw from yet");
  const at::Tensor chosen = at::randint(size_, {count}, random, at::kLong);
  return each_column(rows_, [&](const at::Tensor& rows) { return rows.index_select(0, chosen); });
}

Transitions ReplayBuffer::in_order() const {
  // Until it has been full once the oldest one is the first.
  const std::int64_t oldest = size_ < capacity_ ? 0 : next_;
  return each_column(
      rows_, [&](const at::Tensor& rows) { return rows.narrow(0, 0, size_).roll(-oldest, 0); });
}

void ReplayBuffer::save(torch::serialize::OutputArchive& archive) const {
  const Transitions all = in_order();
  for (const Column& column : kColumns) {
    archive.write(column.name, all.*column.tensor, /*is_buffer=*/true);
  }
}

void ReplayBuffer::load(torch::serialize::InputArchive& archive) {
  Transitions all;
  for (const Column& column : kColumns) {
    all.*column.tensor = examples::read_tensor(archive, column.name);
  }
  check(all);
  next_ = 0;
  size_ = 0;
  add(all);
}

}  // namespace actor_learner
