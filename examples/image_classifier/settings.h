#pragma once

#include <string>

#include "data/batch_loader.h"
#include "data/picture_set.h"
#include "evaluation.h"
#include "models/resnet.h"
#include "optimizer.h"
#include "options.h"
#include "schedule.h"
#include "sinew/groups/process_group.h"
#include "sinew/parallel/distributed_sampler.h"

namespace image_classifier {

// What the options mean for the parts of a training.

ResNetOptions network_options(const Options& options, const DataSets& data,
                              const sinew::ProcessGroup& group);
Schedule schedule_of(const Options& options, int ranks);
SgdSettings sgd_settings(const Options& options, const Schedule& schedule);
LoaderOptions loader_options(const Options& options);
EvaluationOptions evaluation_options(const Options& options);
sinew::parallel::DistributedSampler sampler_of(std::int64_t count, const sinew::ProcessGroup& group,
                                               const Options& options);

/// Optimizer steps of an epoch: of full batches only, so that it is the same number at all ranks.
/// Throws std::invalid_argument where there is none.
std::int64_t steps_of_epoch(const Options& options, std::int64_t pictures, int ranks);

/// Lines of what a checkpoint depends on.
std::string settings_text(const Options& options, const DataSets& data, int ranks);

}  // namespace image_classifier
