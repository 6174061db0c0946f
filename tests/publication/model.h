#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sinew/optim/internal/publication_table.h"
#include "sinew/optim/internal/subscription_state.h"

/// Writers and readers of a publication by their rules alone: what messages there are, and in which
/// order they come, is the model's. Its sources are worse than real ones: they read from whatever
/// they have at that moment, so what is fetched in two parts may be of two versions.
namespace sinew::internal::sim {

/// What may happen, and how often.
struct PublicationWorld {
  const char* name = "";
  /// Of the readers; the writer's is "w". Empty: it shares with nobody.
  std::vector<std::string> pods;
  std::size_t fan_out = 1;
  int publications = 1;
  int writer_kills = 0;
  int reader_kills = 0;
  /// Parts that come otherwise than they were sent.
  int corruptions = 0;
  /// Readers whose worker is evicted and comes back.
  int new_workers = 0;
  /// Answers of a writer that knows nothing of what came after.
  int lies = 0;
  /// Changes never fit.
  bool has_bad_changes = false;
  /// What this reader hands out is always wrong; -1: none.
  int bad_reader = -1;
};

class PublicationModel {
 public:
  explicit PublicationModel(const PublicationWorld& world);

  struct Event {
    enum class Kind {
      kPublish,
      kKillWriter,
      kStartWriter,
      kKillReader,
      kStartReader,
      kNoticeLoss,
      kMessage,
      kCorruptedMessage,
      kNewWorker,
      kLie,
    };
    Kind kind;
    std::size_t reader = 0;
    std::size_t message = 0;
  };
  std::vector<Event> events() const;
  /// What was wrong with it; empty: nothing.
  std::string apply(const Event& event);
  /// No more faults: everybody starts, the writer publishes once more, and all gets done. What is
  /// wrong then.
  std::string settle();
  /// The same for states from which the same follows.
  std::string fingerprint() const;
  void pass_time(std::chrono::seconds time) { now_ += time; }
  /// More of what may happen.
  void allow(const PublicationWorld& more);
  std::uint64_t switches() const { return switches_; }

 private:
  using Step = SubscriptionState::Step;
  /// Content of a version: two parts, which are equal.
  using Content = std::pair<int, int>;
  struct Message {
    enum class Kind { kSeek, kPause, kAsk, kHeldAsk, kAnswer, kAskFailed, kFetch };
    Kind kind;
    SubscriptionState::Attempt attempt = 0;
    std::uint64_t run = 0;
    PublicationTable::Ask ask;
    std::optional<PublicationTable::Answer> answer;
    SubscriptionState::Do how = SubscriptionState::Do::kNothing;
    std::vector<int> parts;
    /// Of a writer that has what it had.
    bool is_lie = false;
  };
  struct Reader {
    bool is_alive = true;
    std::uint64_t id = 0;
    SubscriptionState state{0};
    Content content{0, 0};
    /// Of its version.
    std::uint64_t number = 0;
    SubscriptionState::Attempt last = 0;
    std::vector<Message> messages;
    /// That failed it, for a digest.
    std::set<std::pair<std::string, std::uint64_t>> failed;
  };
  struct Writer {
    std::uint64_t run;
    Content content{0, 0};
    PublicationTable table;
  };

  static std::string digest_of(const Content& content);
  void start_reader(std::size_t index);
  void start_writer();
  void publish();
  std::string deliver(std::size_t index, std::size_t message, bool is_corrupted);
  std::string fetch(std::size_t index, Message message, bool is_corrupted);
  std::string finish(std::size_t index, const Message& message,
                     const std::optional<Content>& content);
  std::string take(std::size_t index, const Step& step, SubscriptionState::Attempt attempt,
                   const std::optional<Content>& content);
  std::string check_answers(const PublicationTable::Answers& answers);
  std::string check_fan_out() const;
  std::optional<Content> content_at(std::uint64_t source, std::uint64_t run) const;

  PublicationWorld left_;
  const PublicationWorld world_;
  PublicationTable::Time now_;
  std::uint64_t next_run_ = 1;
  std::uint64_t next_reader_ = 2;
  int next_content_ = 1;
  std::uint64_t switches_ = 0;
  bool time_has_passed_ = false;
  std::vector<Writer> writer_;
  std::vector<Reader> readers_;
  /// Ids of readers that are lost, and their writer has not noticed.
  std::vector<std::uint64_t> unnoticed_;
};

/// Every order of events; what was wrong first, with the way to it.
std::string explore(const PublicationWorld& world, std::size_t* states);
/// A long random run with at least so many kills.
struct SimulationResult {
  std::string fault;
  std::size_t kills = 0;
  std::uint64_t switches = 0;
  std::size_t settled = 0;
};
SimulationResult simulate(const PublicationWorld& world, std::uint64_t seed, std::size_t kills);

extern const std::vector<PublicationWorld> kPublicationWorlds;
extern const PublicationWorld kManyReaders;

}  // namespace sinew::internal::sim
