#include "sinew/parallel/internal/context_reduction.h"

#include <exception>
#include <utility>

#include "ATen/Functions.h"
#include "ATen/core/grad_mode.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sinew/parallel/internal/group_tensor.h"
#include "sinew/parallel/internal/hook_result.h"
#include "sinew/rpc/base/error.h"

namespace sinew::parallel::internal {

using sinew::internal::LeafReducer;
using sinew::internal::MutexLock;

ContextReduction::ContextReduction(std::shared_ptr<ContextReducer> reducer, Role role,
                                   const std::vector<LeafReducer::Leaf>& leaves)
    : reducer_(std::move(reducer)), role_(role), leaves_(leaves) {
  places_.resize(leaves_.size());
  for (const std::vector<std::size_t>& members : setup().buckets) {
    for (std::size_t i = 0; i < members.size(); ++i) places_[members[i]] = {buckets_.size(), i};
    buckets_.push_back(make_bucket(members));
  }
  for (std::size_t leaf = 0; leaf < leaves_.size(); ++leaf) {
    if (leaves_[leaf].reached) {
      ++buckets_[places_[leaf].bucket].open;
    } else {
      add(leaf, leaves_[leaf].so_far);
    }
  }
}

// With the parameter's strides where it has no gaps, as gradients have them.
at::Tensor ContextReduction::view_of(const at::Tensor& flat, const at::Tensor& parameter,
                                     std::int64_t offset) {
  if (parameter.is_non_overlapping_and_dense()) {
    return flat.as_strided(parameter.sizes(), parameter.strides(), offset);
  }
  return flat.narrow(0, offset, parameter.numel()).view(parameter.sizes());
}

ContextReduction::Bucket ContextReduction::make_bucket(
    const std::vector<std::size_t>& members) const {
  const std::vector<at::Tensor>& parameters = reducer_->leaves();
  std::int64_t elements = 0;
  for (const std::size_t member : members) elements += parameters[member].numel();
  Bucket bucket;
  bucket.flat = at::zeros({elements}, parameters[members.front()].options());
  std::int64_t offset = 0;
  for (const std::size_t member : members) {
    bucket.views.push_back(view_of(bucket.flat, parameters[member], offset));
    offset += parameters[member].numel();
  }
  return bucket;
}

// ---- Local gradients.

void ContextReduction::add(std::size_t leaf, const at::Tensor& gradient) {
  if (!gradient.defined()) return;
  const at::AutoGradMode no_grad(false);
  const Place& place = places_[leaf];
  buckets_[place.bucket].views[place.index].add_(gradient.is_sparse() ? gradient.to_dense()
                                                                      : gradient);
}

void ContextReduction::on_gradient(std::size_t leaf, at::Tensor gradient) {
  add(leaf, leaves_[leaf].so_far);
  add(leaf, gradient);
  {
    MutexLock lock(mutex_);
    --buckets_[places_[leaf].bucket].open;
  }
  launch();
}

std::exception_ptr ContextReduction::unused_error() const {
  if (role_ == Role::kShadow || setup().unused == UnusedParameters::kFound) return nullptr;
  std::vector<std::string> names;
  for (std::size_t leaf = 0; leaf < leaves_.size(); ++leaf) {
    if (leaves_[leaf].reached || leaves_[leaf].so_far.defined()) continue;
    names.push_back(absl::StrFormat("'%s'", setup().parameters[leaf].name));
  }
  if (names.empty()) return nullptr;
  return std::make_exception_ptr(RpcError(
      ErrorCode::kFailedPrecondition,
      absl::StrFormat("the pass has no gradient for parameters of the data-parallel module: %s. "
                      "Leave out what forward() or the loss does not use, or set "
                      "DdpOptions::unused_parameters to kFound",
                      absl::StrJoin(names, ", "))));
}

// ---- Operations.

void ContextReduction::await_end() const {
  try {
    promise_.future().wait();
  } catch (const std::exception&) {
    return;  // the initiator of the pass was told
  }
}

void ContextReduction::allow_launch() {
  {
    MutexLock lock(mutex_);
    allowed_ = true;
  }
  launch();
}

void ContextReduction::launch() {
  for (;;) {
    std::size_t bucket = 0;
    bool failed = false;
    bool votes = false;
    {
      MutexLock lock(mutex_);
      if (!allowed_ || launching_ || launched_all_) return;
      failed = failure_ != nullptr;
      votes = next_ == buckets_.size();
      if (votes ? !finishing_ && !failed : buckets_[next_].open > 0 && !failed) return;
      bucket = next_;
      if (!votes) ++next_;
      launching_ = true;
    }
    votes ? vote(failed) : reduce_bucket(bucket, failed);
    {
      MutexLock lock(mutex_);
      launching_ = false;
      launched_all_ = votes;
    }
    if (votes) return settle();
  }
}

void ContextReduction::reduce_bucket(std::size_t bucket, bool failed) {
  GradientBucket gradients;
  gradients.index = bucket;
  gradients.is_last = bucket + 1 == buckets_.size();
  // What the failed pass still adds to its own is of no interest.
  gradients.gradients = failed ? at::zeros_like(buckets_[bucket].flat) : buckets_[bucket].flat;
  for (const std::size_t member : setup().buckets[bucket]) {
    gradients.parameters.push_back(setup().parameters[member].tensor);
  }
  try {
    results_.push_back(setup().hook(setup().group, gradients));
  } catch (...) {
    results_.push_back(make_failed_future<at::Tensor>(std::current_exception()));
    MutexLock lock(mutex_);
    if (failure_ == nullptr) failure_ = std::current_exception();
  }
}

void ContextReduction::vote(bool failed) {
  const auto kind = failed                   ? PassVote::Kind::kFailed
                    : role_ == Role::kShadow ? PassVote::Kind::kShadow
                                             : PassVote::Kind::kKeep;
  const auto watch = setup().watch.lock();
  PassVote own = watch != nullptr ? watch->vote(kind) : PassVote{kind};
  own.kept = reducer_->kept();
  std::vector<bool> used;
  for (const LeafReducer::Leaf& leaf : leaves_) {
    used.push_back(leaf.reached || leaf.so_far.defined());
  }
  words_ = group_tensor(setup().group,
                        PassVotes::words(setup().group.rank(), setup().group.size(), own, used));
  try {
    voted_ = setup().group.all_reduce_async(words_);
  } catch (...) {
    voted_ = make_failed_future<void>(std::current_exception());
  }
}

Future<std::vector<at::Tensor>> ContextReduction::finish() {
  const std::exception_ptr unused = unused_error();
  {
    MutexLock lock(mutex_);
    finishing_ = true;
    if (failure_ == nullptr) failure_ = unused;
  }
  launch();
  return promise_.future();
}

void ContextReduction::fail(const std::exception_ptr& error) {
  bool taken_back = false;
  {
    MutexLock lock(mutex_);
    taken_back = std::exchange(kept_, false);
    if (failure_ == nullptr) failure_ = error;
  }
  // The other ranks have kept theirs, and hear of it in the next pass.
  if (taken_back) reducer_->count_kept(-1);
  launch();
}

// ---- The end.

// On a thread of the groups: what ranks say to each other after failures blocks. The next pass
// starts its operations behind that.
void ContextReduction::settle() {
  collect_all(results_).on_done(
      [self = shared_from_this()](const Future<std::vector<at::Tensor>>&) {
        self->voted_->on_done([self](const Future<void>&) {
          std::vector<at::Tensor> reduced;
          std::exception_ptr error;
          try {
            reduced = self->read_results();
          } catch (...) {
            // What has happened here comes before what all have heard of it.
            const std::exception_ptr own = self->failure();
            error = own != nullptr ? own : std::current_exception();
          }
          self->reducer_->end();
          if (error != nullptr) {
            self->promise_.try_set_error(error);
          } else {
            self->promise_.try_set_value(std::move(reduced));
          }
        });
      });
}

std::exception_ptr ContextReduction::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

void ContextReduction::obey_votes(const PassVotes& votes) const {
  const std::exception_ptr own = failure();
  const auto watch = setup().watch.lock();
  if (watch != nullptr) watch->align(votes);
  obey(setup().group, votes, own == nullptr ? "" : sinew::internal::describe(own).message,
       setup().parameters);
  if (watch != nullptr) watch->trust();
}

std::vector<at::Tensor> ContextReduction::read_results() {
  voted_->value();
  const PassVotes votes(setup().group.size(), words_.cpu());
  obey_votes(votes);
  std::vector<at::Tensor> reduced(leaves_.size());
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    const std::vector<at::Tensor> views = views_of_result(bucket, results_[bucket].value(), votes);
    const std::vector<std::size_t>& members = setup().buckets[bucket];
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (votes.used_anywhere(members[i])) reduced[members[i]] = views[i];
    }
  }
  {
    MutexLock lock(mutex_);
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    kept_ = true;
  }
  reducer_->count_kept(1);
  return reduced;
}

std::vector<at::Tensor> ContextReduction::views_of_result(std::size_t bucket,
                                                          const at::Tensor& result,
                                                          const PassVotes& votes) const {
  const at::Tensor& flat = buckets_[bucket].flat;
  check_hook_result(result, bucket, flat);
  const at::AutoGradMode no_grad(false);
  at::Tensor mean = result.view({-1});
  const int size = setup().group.size();
  if (reducer_->division() == JoinDivision::kEffectiveWorldSize && votes.active() < size) {
    mean = mean.mul_(static_cast<double>(size) / votes.active());
  }
  std::vector<at::Tensor> views;
  std::int64_t offset = 0;
  for (const std::size_t member : setup().buckets[bucket]) {
    const at::Tensor& parameter = reducer_->leaves()[member];
    views.push_back(view_of(mean, parameter, offset));
    offset += parameter.numel();
  }
  return views;
}

}  // namespace sinew::parallel::internal
