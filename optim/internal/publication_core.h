#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "sinew/optim/internal/publication_table.h"
#include "sinew/optim/internal/weights_messages.h"
#include "sinew/optim/internal/weights_snapshot.h"
#include "sinew/optim/publication.h"
#include "sinew/rpc/base/internal/mutex.h"
#include "sinew/rpc/base/threads/strand.h"

namespace sinew::internal {

/// A Publication: a PublicationTable with the worker's calls, timers and lock. Thread-safe. Held by
/// shared_ptr.
class PublicationCore final : public WeightsWriter,
                              public std::enable_shared_from_this<PublicationCore> {
 public:
  PublicationCore(std::string name, const optim::PublicationOptions& options);

  /// Before anything else, and again for another worker.
  void move_to(const Worker& worker);
  std::uint64_t publish(const optim::StateDict& tensors);
  optim::PublicationStatus status() const;
  /// Readers that wait look for another writer. Nothing comes after it.
  void close();

  Future<std::optional<WeightsOffer>> ask(const WeightsAsk& ask) override;
  void leave(std::uint64_t reader) override;

 private:
  using Offered = Promise<std::optional<WeightsOffer>>;
  using Deliveries = std::vector<std::pair<Offered, std::optional<WeightsOffer>>>;
  struct Reader {
    WorkerInfo worker;
    std::optional<WeightsSource> source;
    /// While it waits.
    std::optional<Offered> waiting;
    Clock::TimePoint since;
  };
  struct Pending {
    std::uint64_t number = 0;
    UnsealedWeights weights;
    std::chrono::system_clock::time_point published;
    Clock::TimePoint since;
  };
  /// The newest version.
  struct Current {
    std::shared_ptr<WeightsSnapshot> snapshot;
    WeightsSource source;
    std::chrono::system_clock::time_point published;
    Clock::TimePoint since;
  };

  void seal_pending();
  void set_current(const Pending& pending, WeightsContent content, Clock::TimePoint now);
  void on_member(const MemberEvent& event);
  void arm();
  void on_tick();
  void deliver_locked(const PublicationTable::Answers& answers, Deliveries& deliveries)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  WeightsOffer offer_locked(const PublicationTable::Answer& answer) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  static void complete(Deliveries deliveries);

  const std::string name_;
  const optim::PublicationOptions options_;

  mutable Mutex mutex_;
  Worker worker_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Strand> sealing_ ABSL_GUARDED_BY(mutex_);
  PublicationTable table_ ABSL_GUARDED_BY(mutex_);
  std::map<std::uint64_t, Reader> readers_ ABSL_GUARDED_BY(mutex_);
  std::optional<Pending> pending_ ABSL_GUARDED_BY(mutex_);
  std::optional<Current> current_ ABSL_GUARDED_BY(mutex_);
  // Former versions, oldest first.
  std::deque<WeightsContent> bases_ ABSL_GUARDED_BY(mutex_);
  bool is_armed_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  // The last one: its function uses the others. For move_to() and close(), which are not called at
  // once.
  MemberWatch watch_;
};

}  // namespace sinew::internal
