#include "sinew/parallel/comm_hook.h"

#include "ATen/core/grad_mode.h"

namespace sinew::parallel {
namespace {

CommHook compress_hook(at::ScalarType type) {
  return [type](const ProcessGroup& group, const GradientBucket& bucket) {
    const at::AutoGradMode no_grad(false);
    const at::Tensor small = bucket.gradients.to(type).div_(group.size());
    return group.all_reduce_async(small).then([small, gradients = bucket.gradients] {
      const at::AutoGradMode none_here(false);
      at::Tensor(gradients).copy_(small);
      return gradients;
    });
  };
}

}  // namespace

CommHook all_reduce_hook() {
  return [](const ProcessGroup& group, const GradientBucket& bucket) {
    const at::AutoGradMode no_grad(false);
    at::Tensor(bucket.gradients).div_(group.size());
    return group.all_reduce_async(bucket.gradients).then([gradients = bucket.gradients] {
      return gradients;
    });
  };
}

CommHook fp16_compress_hook() { return compress_hook(at::kHalf); }
CommHook bf16_compress_hook() { return compress_hook(at::kBFloat16); }

}  // namespace sinew::parallel
