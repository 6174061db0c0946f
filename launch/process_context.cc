#include "sinew/launch/process_context.h"

#include <utility>

#include "sinew/launch/internal/spawn_job.h"

namespace sinew {

ProcessContext::ProcessContext(std::unique_ptr<internal::SpawnJob> job) : job_(std::move(job)) {}
ProcessContext::ProcessContext(ProcessContext&&) noexcept = default;
ProcessContext& ProcessContext::operator=(ProcessContext&&) noexcept = default;
ProcessContext::~ProcessContext() = default;

bool ProcessContext::join(std::chrono::milliseconds timeout) const { return job_->join(timeout); }
std::vector<pid_t> ProcessContext::pids() const { return job_->pids(); }
void ProcessContext::terminate() const { job_->terminate(); }

}  // namespace sinew
