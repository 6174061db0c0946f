#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sinew/rpc/membership/rendezvous_file.h"
#include "sinew/tests/membership/support/sim_process.h"

namespace sinew::internal::sim {

/// What is on the disk.
struct SharedFile {
  FileRendezvous::Contents contents;
  /// May be empty.
  OnStep on_step;
};

/// A worker's rendezvous file. Operations take a while, sometimes longer than a lease; of one whose
/// process is killed meanwhile nobody knows whether it was done.
class SlowFile final : public RendezvousFile {
 public:
  SlowFile(SharedFile& file, testing::ManualClock& clock, Chance& chance,
           std::shared_ptr<Process> process)
      : file_(file), clock_(clock), chance_(chance), process_(std::move(process)) {}

  void read(OnRead then) override;
  void publish(Member self, JobInstance instance, OnDone then) override;
  void found(Member self, FileRendezvous::Contents expected, JobInstance instance,
             OnDone then) override;
  void remove(WorkerInfo worker, OnDone then) override;
  void close() override { closed_ = true; }
  const std::string& path() const override { return path_; }

 private:
  using Operation = std::function<absl::Status()>;
  void ask(Operation operation, std::function<void(const absl::Status&)> then);

  SharedFile& file_;
  testing::ManualClock& clock_;
  Chance& chance_;
  const std::shared_ptr<Process> process_;
  const std::string path_ = "/meet";
  bool closed_ = false;
  // When the operation before has ended.
  TimePoint free_at_;
};

}  // namespace sinew::internal::sim
