#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sinew/streams/internal/stream_receiver.h"
#include "sinew/streams/internal/stream_sender.h"

namespace sinew::internal::sim {

/// What may happen to one stream.
struct StreamWorld {
  const char* name;
  /// The writer writes so many, then ends it.
  int items = 4;
  /// So many fit its buffer, and go in one answer.
  std::uint64_t room = 2;
  std::uint64_t answer = 2;
  /// What the reader may have of answers, and of those with more than one item.
  std::size_t answers = 2;
  std::size_t large_answers = 2;
  /// Who read at the same time.
  std::size_t readers = 1;
  /// The writer may end it with an error, at any time.
  bool fails = false;
  /// The reader may stop.
  bool stops = false;
  /// The time may be over, at each end by its own clock.
  bool has_deadline = false;
  /// Either worker may be lost.
  bool loses = false;
};

/// Both ends of a stream, and messages between them that overtake each other. Copyable.
class StreamModel {
 public:
  explicit StreamModel(const StreamWorld& world);

  using Visit = std::function<void(const StreamModel& next, const std::string& step)>;
  void each_next(const Visit& visit) const;
  /// Which rule does not hold in this state; empty if all do.
  std::string broken() const;
  /// Lets all that is under way arrive, and both ends go on: the stream must come to its end.
  std::string settle() const;
  std::string key() const;

 private:
  struct Answer {
    StreamSender::PullId pull = 0;
    std::uint64_t first = 0;
    std::vector<int> items;
    std::optional<absl::Status> end;
    /// The pull was refused.
    bool is_failure = false;
  };

  bool may_write() const { return !writer_waits_ && sender_.closed().ok(); }
  void write();
  void finish(const absl::Status& end);
  void want();
  void stop();
  void deliver_pull(std::size_t index);
  void deliver_answer(std::size_t index);
  void deliver_stop();
  void end_time_of_writer();
  void end_time_of_reader();
  void lose();

  void take(const StreamSender::Outputs& outputs);
  void take(const StreamReceiver::Outputs& outputs);
  void fail_pulls(const absl::Status& why);
  void check_end();

  StreamWorld world_;
  StreamSender sender_;
  StreamReceiver receiver_;
  // The writer.
  int written_ = 0;
  bool writer_waits_ = false;
  std::vector<int> buffer_;
  std::optional<absl::Status> end_;
  // On their way.
  std::vector<StreamSender::PullId> pulls_;
  std::vector<Answer> answers_;
  bool stop_is_under_way_ = false;
  // The reader: pulls without an answer, and what has come.
  StreamSender::PullId last_pull_ = 0;
  std::vector<StreamSender::PullId> outstanding_;
  std::vector<StreamSender::PullId> waiting_pulls_;
  std::map<std::uint64_t, std::vector<int>> kept_;
  std::size_t at_ = 0;
  int read_ = 0;
  std::size_t readers_wait_ = 0;
  bool end_came_ = false;
  bool pull_failed_ = false;
  // What has happened.
  bool reader_stopped_ = false;
  bool writer_late_ = false;
  bool reader_late_ = false;
  bool is_lost_ = false;
  std::string wrong_;
};

std::string explore(const StreamWorld& world, std::size_t* states);

/// All answers that a liar may give to a few pulls: what is read must be in its order, once, and
/// whoever waits must be told. What is broken, or empty.
std::string explore_liar();

/// Small ones, all of whose courses are looked at.
inline constexpr StreamWorld kStreamWorlds[] = {
    {"to its end", 5},
    {"two readers", 4, 2, 2, 2, 2, /*readers=*/2},
    {"one by one", 4, 1, 1},
    {"small answers", 4, 3, 1},
    {"large answers", 5, 3, 3, 1, /*large_answers=*/3},
    {"fails", 3, 2, 2, 2, 2, 1, /*fails=*/true},
    {"stops", 3, 2, 2, 2, 2, 1, /*fails=*/true, /*stops=*/true},
    {"out of time", 3, 2, 2, 2, 2, 1, false, /*stops=*/true, /*has_deadline=*/true},
    {"lost", 3, 2, 2, 2, 2, 2, /*fails=*/true, /*stops=*/true, /*has_deadline=*/false,
     /*loses=*/true},
};

}  // namespace sinew::internal::sim
