#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "sinew/rref/internal/name_search.h"

namespace sinew::internal::sim {

/// What may happen to one search.
struct NameWorld {
  const char* name;
  /// So many incarnations of the worker come, one after the other.
  int incarnations = 1;
  /// How often a name is published or taken back.
  int changes = 2;
  bool has_deadline = true;
  /// A worker that has not the name says so at once, whatever it was asked.
  bool is_hasty = false;
  /// It may refuse to answer, and this worker may be evicted.
  bool refuses = false;
  /// So often it cannot be reached, though it lives.
  int silences = 0;
};

/// A search, the worker and the name that it seeks, and what may become of these: the worker comes,
/// is lost, and comes back; that is heard of late; the name is published, of the right type or the
/// wrong one, and taken back; time passes. Copyable.
class NameModel {
 public:
  explicit NameModel(const NameWorld& world);

  using Visit = std::function<void(const NameModel& next, const std::string& step)>;
  void each_next(const Visit& visit) const;
  /// Which rule does not hold in this state; empty if all do.
  std::string broken() const;
  /// Lets the worker be there with the name, then lets nothing come but time: what does not follow
  /// that must.
  std::string settle() const;
  std::string key() const;

 private:
  using Kind = NameSearch::Step::Kind;
  enum class Object : std::uint8_t { kAbsent, kPublished, kWrongType };

  bool is_over() const;
  bool is_pausing() const;
  bool at_deadline() const { return world_.has_deadline && now_ >= deadline_; }
  void tick();
  void hear();
  /// Answers the step that is under way; false: it waits.
  bool respond();
  NameSearch::Step respond_to_ask();
  NameSearch::Step respond_to_fetch();
  NameSearch::Step lose();
  void be_silent();
  void refuse();
  void evict();
  NameSearch::Step fail(const absl::Status& error);
  void take(NameSearch::Step step);
  std::string settle_in_vain() const;

  NameWorld world_;
  NameSearch::TimePoint now_;
  NameSearch::TimePoint deadline_;
  NameSearch search_;
  NameSearch::Step step_;
  NameSearch::TimePoint asked_at_;
  // The worker: which incarnation lives (0: none), how many have, and which one is known of.
  std::uint64_t alive_ = 0;
  int born_ = 0;
  std::uint64_t known_ = 0;
  Object object_ = Object::kAbsent;
  int changes_left_;
  int silences_left_;
  // What an onlooker knows.
  std::uint64_t told_lost_ = 0;
  std::uint64_t asked_ = 0;
  bool may_fail_ = false;
  int hasty_denials_ = 0;
  int vanished_ = 0;
  std::string wrong_;
};

std::string explore(const NameWorld& world, std::size_t* states);

/// Small ones, all of whose courses are looked at.
inline constexpr NameWorld kNameWorlds[] = {
    {"comes and goes", 3, 3},
    {"no deadline", 2, 3, /*has_deadline=*/false},
    {"vanishes", 1, 22},
    {"refuses", 2, 2, /*has_deadline=*/true, /*is_hasty=*/false, /*refuses=*/true},
    {"hasty", 2, 1, /*has_deadline=*/true, /*is_hasty=*/true},
    {"silent", 2, 2, /*has_deadline=*/true, /*is_hasty=*/false, /*refuses=*/false, /*silences=*/2},
};

}  // namespace sinew::internal::sim
