#include "sinew/sinew.h"

void make(const sinew::Worker& worker, const std::vector<sinew::RRef<at::Tensor>>& parameters) {
  sinew::optim::DistributedOptimizer optimizer(worker, parameters, sinew::optim::LbfgsOptions());
}
