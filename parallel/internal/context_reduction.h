#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "sinew/parallel/internal/context_reducer.h"
#include "sinew/parallel/internal/pass_votes.h"
#include "sinew/rpc/base/internal/mutex.h"

namespace sinew::parallel::internal {

/// One pass of a ContextReducer. Whatever happens, it starts the operations that the other ranks
/// expect of it: one for each bucket, and the vote.
class ContextReduction final : public sinew::internal::LeafReduction,
                               public std::enable_shared_from_this<ContextReduction> {
 public:
  enum class Role { kActive, kShadow };

  ContextReduction(std::shared_ptr<ContextReducer> reducer, Role role,
                   const std::vector<sinew::internal::LeafReducer::Leaf>& leaves);

  void on_gradient(std::size_t leaf, at::Tensor gradient) override;
  Future<std::vector<at::Tensor>> finish() override;
  void fail(const std::exception_ptr& error) override;

  bool has_failed() const { return failure() != nullptr; }
  /// Blocks until it needs the group no more.
  void await_end() const;
  /// It is this one's turn.
  void allow_launch();

 private:
  struct Bucket {
    at::Tensor flat;
    // Of the gradients, in `flat`.
    std::vector<at::Tensor> views;
    // Gradients that the pass has not brought yet.
    std::size_t open = 0;
  };
  struct Place {
    std::size_t bucket = 0;
    std::size_t index = 0;
  };

  static at::Tensor view_of(const at::Tensor& flat, const at::Tensor& parameter,
                            std::int64_t offset);
  const ContextReducer::Setup& setup() const { return reducer_->setup_; }
  Bucket make_bucket(const std::vector<std::size_t>& members) const;
  void add(std::size_t leaf, const at::Tensor& gradient);
  /// Starts what can be started, in order.
  void launch();
  std::exception_ptr unused_error() const;
  void reduce_bucket(std::size_t bucket, bool failed);
  void vote(bool failed);
  void settle();
  std::exception_ptr failure() const;
  void obey_votes(const PassVotes& votes) const;
  std::vector<at::Tensor> read_results();
  std::vector<at::Tensor> views_of_result(std::size_t bucket, const at::Tensor& result,
                                          const PassVotes& votes) const;

  const std::shared_ptr<ContextReducer> reducer_;
  const Role role_;
  std::vector<sinew::internal::LeafReducer::Leaf> leaves_;
  std::vector<Bucket> buckets_;
  std::vector<Place> places_;
  const Promise<std::vector<at::Tensor>> promise_{nullptr};

  // Of the one who launches, and later of the one who settles.
  std::vector<Future<at::Tensor>> results_;
  at::Tensor words_;
  std::optional<Future<void>> voted_;

  mutable sinew::internal::Mutex mutex_;
  bool allowed_ ABSL_GUARDED_BY(mutex_) = false;
  bool launching_ ABSL_GUARDED_BY(mutex_) = false;
  std::size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;
  bool launched_all_ ABSL_GUARDED_BY(mutex_) = false;
  std::exception_ptr failure_ ABSL_GUARDED_BY(mutex_);
  // All ranks have agreed to keep the gradients.
  bool kept_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sinew::parallel::internal
