#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sinew/rpc/base/threads/timer_queue.h"

namespace sinew::internal {

/// What a version is called, and what is in it. Numbers rise at each reader; two writers may give
/// the same number, but not the same run.
struct VersionLabel {
  /// Drawn by the writer.
  std::uint64_t run = 0;
  /// 0: none.
  std::uint64_t number = 0;
  /// Of all of its bytes: what has the same is the same.
  std::string digest;

  friend bool operator==(const VersionLabel& a, const VersionLabel& b) {
    return a.run == b.run && a.number == b.number && a.digest == b.digest;
  }
};

/// The writer's side of a publication: which version there is, what each reader has, and from whom
/// it takes the next one. A source is the writer or a reader, and hands out bytes to so many at
/// once. Readers of one pod (processes that can map each other's memory) get the bytes once, and
/// share them. Pure; not thread-safe.
class PublicationTable {
 public:
  using Time = Clock::TimePoint;
  /// Drawn by the reader.
  using ReaderId = std::uint64_t;
  /// As a source.
  static constexpr ReaderId kNobody = 0;
  static constexpr ReaderId kWriter = 1;
  /// A reader that has said nothing for so long is not waited for, and needs no room at its source.
  static constexpr std::chrono::seconds kMostFetch{60};

  /// `above`: versions have greater numbers.
  PublicationTable(std::uint64_t run, std::string pod, std::size_t fan_out, std::uint64_t above)
      : run_(run), pod_(std::move(pod)), fan_out_(fan_out), told_(above) {}

  /// A reader asks for what is later than what it has. It has ended what it was told to fetch.
  struct Ask {
    ReaderId reader = kNobody;
    /// Empty: it shares memory with no other process.
    std::string pod;
    VersionLabel has;
    /// What it was told to fetch could not be had there, or was not what it should be.
    ReaderId failed = kNobody;
  };
  /// The answer to a reader that waits, which waits no more.
  struct Answer {
    ReaderId reader = kNobody;
    VersionLabel version;
    /// kNobody: it has these bytes, under another number.
    ReaderId source = kNobody;
    /// It can map the memory of the source.
    bool is_shared = false;
  };
  using Answers = std::vector<Answer>;

  /// A number for a version that is made.
  std::uint64_t reserve() { return reserved_ = std::max(reserved_, told_) + 1; }
  /// The newest version, whose number was reserved. It gets a greater one if others have passed it.
  void on_published(std::uint64_t number, const std::string& digest, Time now, Answers& answers);
  void on_ask(const Ask& ask, Time now, Answers& answers);
  /// It has asked long enough, and may ask again. False: it does not wait.
  bool on_overdue(ReaderId reader);
  /// It is lost, or wants no more.
  void on_left(ReaderId reader, Time now, Answers& answers);
  /// Room that is due: see next_time().
  void on_time(Time now, Answers& answers) { answer_all(now, answers); }
  /// When a reader that waits may find room without a further event; Time::max(): not by itself.
  Time next_time(Time now) const;

  const VersionLabel& current() const { return current_; }
  struct Reader {
    std::string pod;
    VersionLabel has;
    bool is_waiting = false;
    /// From whom it fetches the bytes of `fetches`, and since when; kNobody: it does not fetch.
    ReaderId source = kNobody;
    bool is_shared = false;
    std::string fetches;
    Time since;
    /// Which have failed it for the current version.
    std::set<ReaderId> avoided;
  };
  const std::map<ReaderId, Reader>& readers() const { return readers_; }

 private:
  void answer_all(Time now, Answers& answers);
  std::optional<Answer> answer(ReaderId id, const Reader& reader, Time now) const;
  /// From memory that it can map; kNobody: there is none. nullopt: it is on its way.
  std::optional<ReaderId> shared_source(ReaderId id, const Reader& reader, Time now) const;
  ReaderId bytes_source(ReaderId id, const Reader& reader, Time now) const;
  bool is_fetching(const Reader& reader, Time now) const;
  bool has_current(const Reader& reader) const;
  std::size_t served_by(ReaderId source, Time now) const;

  const std::uint64_t run_;
  const std::string pod_;
  const std::size_t fan_out_;
  /// The greatest number that any reader may have.
  std::uint64_t told_;
  std::uint64_t reserved_ = 0;
  VersionLabel current_;
  std::map<ReaderId, Reader> readers_;
};

}  // namespace sinew::internal
