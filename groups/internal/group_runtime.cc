#include "sinew/groups/internal/group_runtime.h"

namespace sinew::internal {
namespace {

Executor::Options executor_options() {
  Executor::Options options;
  options.num_threads = 4;
  // Receives that wait for their sender take one each.
  options.max_blocked_threads = 8192;
  options.name = "sinew-groups";
  return options;
}

}  // namespace

GroupRuntime& GroupRuntime::get() {
  static GroupRuntime* const runtime = new GroupRuntime();
  runtime->process_.require();
  return *runtime;
}

GroupRuntime::GroupRuntime() : executor_(executor_options()) { ProcessLife::watch(); }

}  // namespace sinew::internal
