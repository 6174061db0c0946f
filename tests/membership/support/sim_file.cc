#include "sinew/tests/membership/support/sim_file.h"

#include <algorithm>

namespace sinew::internal::sim {
namespace {

template <class Callback>
std::shared_ptr<Callback> shared(Callback callback) {
  return std::make_shared<Callback>(std::move(callback));
}

}  // namespace

void SlowFile::ask(Operation operation, std::function<void(const absl::Status&)> then) {
  if (closed_) return then(absl::CancelledError("closed"));
  const nanoseconds takes = chance_.one_in(30) ? chance_.between(milliseconds(50), seconds(3))
                                               : chance_.between(microseconds(50), milliseconds(9));
  const TimePoint done = std::max(free_at_, clock_.now()) + takes;
  free_at_ = done;
  // Half-way, so that a process may be killed before and after.
  clock_.run_at(done - takes / 2, [&file = file_, process = process_, operation, then, done] {
    if (process->is_dead()) return;
    const nanoseconds later = file.on_step ? file.on_step() : nanoseconds(0);
    if (process->is_dead()) return;  // by that
    const absl::Status status = operation();
    process->run_at(done + later, [status, then] { then(status); });
  });
}

void SlowFile::read(OnRead then) {
  const auto contents = std::make_shared<FileRendezvous::Contents>();
  ask(
      [this, contents] {
        *contents = file_.contents;
        return absl::OkStatus();
      },
      [contents, then = shared(std::move(then))](const absl::Status& status) {
        status.ok() ? std::move (*then)(*contents) : std::move (*then)(status);
      });
}

void SlowFile::publish(Member self, JobInstance instance, OnDone then) {
  ask(
      [this, self, instance] {
        std::vector<Member>& entries = file_.contents.entries;
        if (!entries.empty() && file_.contents.instance != instance) {
          return absl::FailedPreconditionError("the file is of another instance");
        }
        entries.erase(std::remove_if(entries.begin(), entries.end(),
                                     [&](const Member& each) {
                                       return each.worker.name == self.worker.name ||
                                              each.worker.rank == self.worker.rank;
                                     }),
                      entries.end());
        entries.push_back(self);
        file_.contents.instance = instance;
        return absl::OkStatus();
      },
      [then = shared(std::move(then))](const absl::Status& status) { std::move (*then)(status); });
}

void SlowFile::found(Member self, FileRendezvous::Contents expected, JobInstance instance,
                     OnDone then) {
  ask(
      [this, self, expected, instance] {
        const auto same = [](const Member& a, const Member& b) { return a.worker == b.worker; };
        const std::vector<Member>& entries = file_.contents.entries;
        if (file_.contents.instance != expected.instance ||
            !std::equal(entries.begin(), entries.end(), expected.entries.begin(),
                        expected.entries.end(), same)) {
          return absl::AbortedError("another worker wrote first");
        }
        file_.contents.entries = {self};
        file_.contents.instance = instance;
        return absl::OkStatus();
      },
      [then = shared(std::move(then))](const absl::Status& status) { std::move (*then)(status); });
}

void SlowFile::remove(WorkerInfo worker, OnDone then) {
  ask(
      [this, worker] {
        std::vector<Member>& entries = file_.contents.entries;
        entries.erase(std::remove_if(entries.begin(), entries.end(),
                                     [&](const Member& each) {
                                       return each.worker.name == worker.name &&
                                              each.worker.incarnation == worker.incarnation;
                                     }),
                      entries.end());
        if (entries.empty()) file_.contents.instance = JobInstance();
        return absl::OkStatus();
      },
      [then = shared(std::move(then))](const absl::Status& status) { std::move (*then)(status); });
}

}  // namespace sinew::internal::sim
