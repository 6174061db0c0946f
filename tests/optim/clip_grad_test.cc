#include "sinew/optim/clip_grad.h"

// Before the next one, which needs it.
#include <torch/types.h>

#include <torch/nn/utils/clip_grad.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ATen/ATen.h"
#include "sinew/optim/internal/gradient_norms.h"
#include "sinew/sinew.h"
#include "sinew/tests/optim/training.h"
#include "sinew/tests/support/cluster.h"

namespace {

using sinew::ErrorCode;
using sinew::RpcError;
using sinew::RRef;
using sinew::autograd::Context;
using sinew::internal::scale_gradients_of;
using sinew::optim::clip_grad_norm_;
using sinew::optim::ClipGradOptions;
using sinew::testing::error_of;
using ::testing::HasSubstr;
using testoptim::batch;
using testoptim::RemoteTraining;
using testoptim::Shard;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class ClipGrad : public sinew::testing::ClusterTest {
 protected:
  sinew::testing::Cluster& start_workers() {
    sinew::MethodTable methods;
    testoptim::add_methods(methods);
    return start(3, methods);
  }
  /// Of all shards; none where a parameter has none.
  static std::vector<at::Tensor> gradients(const RemoteTraining& training, const Context& context) {
    std::vector<at::Tensor> all;
    for (const RRef<Shard>& shard : training.shards()) {
      for (const at::Tensor& one : shard.call<&Shard::gradients>(context.id())) {
        if (one.defined()) all.push_back(one.is_sparse() ? one.to_dense() : one);
      }
    }
    return all;
  }
};
SINEW_INSTANTIATE_CLUSTER_TEST(ClipGrad);

TEST_P(ClipGrad, IsThatOfOneProcess) {
  start_workers();
  for (const bool sparse : {false, true}) {
    const RemoteTraining training(worker(0), 2, sparse);
    for (const double norm_type : {1.0, 2.0, 3.5, kInfinity}) {
      for (const double max_norm : {0.01, 0.2, 1000.0}) {
        const Context context(worker(0));
        testoptim::Batch data = batch(3);
        // A parameter without a gradient.
        data.bias = norm_type != 1;
        sinew::autograd::backward(context, {training.loss(data)});
        std::vector<at::Tensor> local;
        for (const at::Tensor& gradient : gradients(training, context)) {
          local.push_back(at::zeros_like(gradient).requires_grad_());
          local.back().mutable_grad() = gradient.clone();
        }
        ASSERT_FALSE(local.empty());
        ClipGradOptions how;
        how.norm_type = norm_type;
        const double norm = clip_grad_norm_(context, training.parameters(), max_norm, how);
        EXPECT_NEAR(norm, torch::nn::utils::clip_grad_norm_(local, max_norm, norm_type), 1e-5);
        const std::vector<at::Tensor> clipped = gradients(training, context);
        ASSERT_EQ(clipped.size(), local.size());
        for (std::size_t i = 0; i < clipped.size(); ++i) {
          EXPECT_TRUE(clipped[i].allclose(local[i].grad(), 1e-4, 1e-7)) << norm_type << max_norm;
        }
        // What is within the limit stays as it is.
        const double after = clip_grad_norm_(context, training.parameters(), max_norm, how);
        EXPECT_LE(after, std::min(norm, max_norm) * (1 + 1e-5));
      }
    }
  }
}

TEST_P(ClipGrad, HappensOnceAndOnlyForWhoTakesPart) {
  start_workers();
  const RemoteTraining training(worker(0), 2, false);
  const std::vector<RRef<at::Tensor>> all = training.parameters();
  {
    const Context context(worker(0));
    sinew::autograd::backward(context, {training.loss(batch(1))});
    const auto before = gradients(training, context);
    const std::vector<RRef<at::Tensor>> first(all.begin(), all.begin() + 3);
    for (int again = 0; again < 2; ++again) {
      worker(0).peer(1).call<&scale_gradients_of>(context.id(), first, 0.5, std::uint64_t{17});
    }
    const auto after = gradients(training, context);
    EXPECT_TRUE(after[0].equal(before[0] * 0.5));
    EXPECT_TRUE(after.back().equal(before.back()));
  }
  // One that nobody has called in the context.
  const Context other(worker(0));
  EXPECT_EQ(clip_grad_norm_(other, all, 1), 0);
  sinew::autograd::backward(
      other,
      {training.shards()[0].call<&Shard::forward>(batch(0).rows, batch(0).input, true).sum()});
  EXPECT_GT(clip_grad_norm_(other, all, 1e-3), 0);
  const RpcError error = error_of([&] {
    worker(2).peer(1).call<&scale_gradients_of>(other.id(), std::vector<RRef<at::Tensor>>(), 0.5,
                                                std::uint64_t{18});
  });
  EXPECT_EQ(error.code(), ErrorCode::kPermissionDenied);
  EXPECT_THAT(error.message(), HasSubstr("worker 'worker2' takes no part in autograd context"));
}

TEST_P(ClipGrad, WhatIsNoNumberShowsWhereverItIs) {
  start_workers();
  const RemoteTraining training(worker(0), 2, false);
  const at::Tensor number = at::ones({2}).requires_grad_();
  const at::Tensor no_number = at::ones({2}).requires_grad_();
  const RRef<at::Tensor> of_number = sinew::make_rref(worker(0), number);
  const RRef<at::Tensor> of_no_number = sinew::make_rref(worker(0), no_number);
  for (const double norm_type : {2.0, kInfinity}) {
    // The last of its owner, of the first owner and of the last.
    std::vector<RRef<at::Tensor>> first = training.parameters();
    std::vector<RRef<at::Tensor>> last = first;
    first.insert(first.begin(), {of_number, of_no_number});
    last.insert(last.end(), {of_number, of_no_number});
    for (const auto& parameters : {first, last}) {
      const Context context(worker(0));
      sinew::autograd::backward(
          context, {training.loss(batch(1)) + number.sum() + (no_number * std::nan("")).sum()});
      ClipGradOptions how;
      how.norm_type = norm_type;
      EXPECT_TRUE(std::isnan(clip_grad_norm_(context, parameters, 1, how)));
      how.error_if_nonfinite = true;
      EXPECT_EQ(error_of([&] { clip_grad_norm_(context, parameters, 1, how); }).code(),
                ErrorCode::kOutOfRange);
    }
  }
}

TEST_P(ClipGrad, GradientsOfZeroStayZero) {
  start_workers();
  const at::Tensor leaf = at::ones({2}).requires_grad_();
  const Context context(worker(0));
  sinew::autograd::backward(context, {(leaf * 0).sum()});
  EXPECT_EQ(clip_grad_norm_(context, {sinew::make_rref(worker(0), leaf)}, 0), 0);
  EXPECT_TRUE(sinew::autograd::gradient_of(context, leaf).equal(at::zeros({2})));
}

TEST_P(ClipGrad, AnOwnerThatFailsIsNotPassedOver) {
  sinew::testing::Cluster& cluster = start_workers();
  const RemoteTraining training(worker(0), 2, false);
  const Context context(worker(0));
  sinew::autograd::backward(context, {training.loss(batch(1))});
  cluster.faults().fail(sinew::testing::calls<&scale_gradients_of>().at("worker2").first(1));
  EXPECT_EQ(error_of([&] { clip_grad_norm_(context, training.parameters(), 1e-3); }).code(),
            ErrorCode::kUnavailable);
}

TEST_P(ClipGrad, AParameterThatIsThereTwiceIsNamed) {
  start_workers();
  const at::Tensor leaf = at::ones({4}).requires_grad_();
  const RRef<at::Tensor> first = sinew::make_rref(worker(0), leaf);
  const RRef<at::Tensor> again = sinew::make_rref(worker(0), leaf);
  const RemoteTraining training(worker(0), 1, false);
  const Context context(worker(0));
  sinew::autograd::backward(context, {(leaf * 3).sum() + training.loss(batch(1))});
  EXPECT_NEAR(clip_grad_norm_(context, {first}, 100), 6, 1e-6);
  const RRef<at::Tensor> remote = training.parameters().front();
  const RpcError error = error_of([&] { clip_grad_norm_(context, {first, remote, again}, 1); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message(),
              HasSubstr("parameter 2 of those to clip is there twice: a weight that modules share "
                        "is given once"));
  EXPECT_TRUE(sinew::autograd::gradient_of(context, leaf).equal(at::full({4}, 3.0)));
}

TEST_P(ClipGrad, MistakesAreNamed) {
  start_workers();
  const at::Tensor leaf = at::ones({2}).requires_grad_();
  const RRef<at::Tensor> parameter = sinew::make_rref(worker(0), leaf);
  const Context context(worker(0));
  sinew::autograd::backward(context, {(leaf * kInfinity).sum()});
  EXPECT_EQ(error_of([&] { clip_grad_norm_(context, {parameter}, -1); }).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([&] { clip_grad_norm_(context, {parameter}, kInfinity); }).code(),
            ErrorCode::kInvalidArgument);
  ClipGradOptions how;
  how.norm_type = 0;
  EXPECT_EQ(error_of([&] { clip_grad_norm_(context, {parameter}, 1, how); }).code(),
            ErrorCode::kInvalidArgument);
  const RpcError empty = error_of([&] {
    clip_grad_norm_(context, {parameter, RRef<at::Tensor>()}, 1);
  });
  EXPECT_EQ(empty.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(empty.message(), HasSubstr("parameter 1 is an empty reference"));
  how = {};
  how.error_if_nonfinite = true;
  EXPECT_EQ(error_of([&] { clip_grad_norm_(context, {parameter}, 1, how); }).code(),
            ErrorCode::kOutOfRange);
  EXPECT_TRUE(sinew::autograd::gradient_of(context, leaf).isinf().all().item<bool>());
  EXPECT_TRUE(std::isinf(clip_grad_norm_(context, {parameter}, 1)));
  // As LibTorch's.
  EXPECT_TRUE(sinew::autograd::gradient_of(context, leaf).isnan().all().item<bool>());
}

}  // namespace
