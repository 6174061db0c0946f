#include "sinew/tests/rref/name_model.h"

#include <chrono>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sinew/tests/threads/support/explore.h"

namespace sinew::internal::sim {
namespace {

using namespace std::chrono_literals;
using Fate = NameSearch::Fate;
using Step = NameSearch::Step;

// A search of 80 s asks for the last time 1 s before its end.
constexpr auto kTime = 80s;
constexpr auto kTick = 1s;

WorkerInfo member(std::uint64_t incarnation) { return {"learner", 1, {incarnation}}; }

// What an incarnation has instead of what is sought.
std::string other_name(std::uint64_t incarnation) { return absl::StrCat("other", incarnation); }

}  // namespace

NameModel::NameModel(const NameWorld& world)
    : world_(world),
      deadline_(world.has_deadline ? now_ + kTime : NameSearch::TimePoint::max()),
      search_("learner", "agent", now_, deadline_),
      changes_left_(world.changes),
      silences_left_(world.silences) {
  take(search_.begin());
}

bool NameModel::is_over() const {
  return step_.kind == Kind::kSucceed || step_.kind == Kind::kFail ||
         step_.kind == Kind::kFailLikewise;
}

bool NameModel::is_pausing() const {
  return step_.kind == Kind::kSeek && step_.hold != NameSearch::Duration::max();
}

void NameModel::each_next(const Visit& visit) const {
  if (is_over()) return;
  const auto step = [&](const char* name, const auto& change) {
    NameModel next = *this;
    change(next);
    visit(next, name);
  };
  NameModel answered = *this;
  if (answered.respond()) visit(answered, "answer");
  if (alive_ == 0 && born_ < world_.incarnations) {
    step("the worker comes", [](NameModel& next) {
      next.alive_ = static_cast<std::uint64_t>(++next.born_);
      next.object_ = Object::kAbsent;
    });
  }
  if (alive_ != 0) step("the worker dies", [](NameModel& next) { next.alive_ = 0; });
  if (known_ != alive_) step("that is heard of", [](NameModel& next) { next.hear(); });
  if (alive_ != 0 && changes_left_ > 0) {
    const auto change = [&](const char* name, Object object) {
      if (object == object_) return;
      step(name, [object](NameModel& next) {
        next.object_ = object;
        --next.changes_left_;
      });
    };
    change("the name is published", Object::kPublished);
    change("the name is taken back", Object::kAbsent);
    if (object_ == Object::kAbsent) change("a wrong type is published", Object::kWrongType);
  }
  if (!at_deadline()) step("time passes", [](NameModel& next) { next.tick(); });
  if (silences_left_ > 0 && alive_ != 0 && alive_ == step_.worker.incarnation.value) {
    step("the worker is silent", [](NameModel& next) { next.be_silent(); });
  }
  if (world_.refuses) {
    step("the worker refuses", [](NameModel& next) { next.refuse(); });
    step("this worker is evicted", [](NameModel& next) { next.evict(); });
  }
}

void NameModel::hear() { known_ = known_ != 0 ? 0 : alive_; }

// To the next time at which anything happens.
void NameModel::tick() {
  const bool is_held = step_.kind == Kind::kAsk || is_pausing();
  const auto due = is_held ? asked_at_ + step_.hold : now_ + kTime;
  const bool is_last = due >= deadline_ || due <= now_;
  now_ = is_last && world_.has_deadline ? deadline_ : std::max(due, now_ + kTick);
}

bool NameModel::respond() {
  switch (step_.kind) {
    case Kind::kSeek:
      if (known_ != 0 && known_ != step_.worker.incarnation.value) {
        take(search_.on_member(member(known_), now_));
        return true;
      }
      if (!at_deadline() && !(is_pausing() && now_ >= asked_at_ + step_.hold)) return false;
      take(search_.on_seek_failed(absl::DeadlineExceededError("nobody came"), now_));
      return true;
    case Kind::kAsk: {
      const bool has_answer = alive_ != step_.worker.incarnation.value || at_deadline() ||
                              object_ != Object::kAbsent || world_.is_hasty ||
                              now_ >= asked_at_ + step_.hold;
      if (has_answer) take(respond_to_ask());
      return has_answer;
    }
    case Kind::kFetch:
      take(respond_to_fetch());
      return true;
    case Kind::kSucceed:
    case Kind::kFail:
    case Kind::kFailLikewise:
      break;
  }
  return false;
}

Step NameModel::respond_to_ask() {
  if (alive_ != step_.worker.incarnation.value) return lose();
  if (at_deadline()) return fail(absl::DeadlineExceededError("the time of the question is over"));
  if (object_ != Object::kAbsent) return search_.on_published();
  if (world_.is_hasty && now_ < asked_at_ + step_.hold) {
    may_fail_ = true;
    ++hasty_denials_;
  }
  return search_.on_absent({other_name(alive_)}, 1, now_);
}

Step NameModel::respond_to_fetch() {
  if (alive_ != step_.worker.incarnation.value) return lose();
  if (at_deadline()) return fail(absl::DeadlineExceededError("the time of the call is over"));
  switch (object_) {
    case Object::kAbsent:
      may_fail_ = ++vanished_ > NameSearch::kMostVanished;
      return search_.on_fetch_failed(absl::NotFoundError("nothing is published"), Fate::kMayLive,
                                     now_);
    case Object::kWrongType:
      return fail(absl::InvalidArgumentError("it has another type"));
    case Object::kPublished:
      break;
  }
  return search_.on_fetched();
}

Step NameModel::lose() {
  told_lost_ = step_.worker.incarnation.value;
  vanished_ = 0;
  const absl::Status lost = absl::UnavailableError("the worker is lost");
  return step_.kind == Kind::kAsk ? search_.on_ask_failed(lost, Fate::kLost, now_)
                                  : search_.on_fetch_failed(lost, Fate::kLost, now_);
}

void NameModel::be_silent() {
  if (step_.kind == Kind::kSeek) return;
  --silences_left_;
  const absl::Status silent = absl::UnavailableError("it cannot be reached");
  take(step_.kind == Kind::kAsk ? search_.on_ask_failed(silent, Fate::kMayLive, now_)
                                : search_.on_fetch_failed(silent, Fate::kMayLive, now_));
}

Step NameModel::fail(const absl::Status& error) {
  may_fail_ = true;
  return step_.kind == Kind::kAsk     ? search_.on_ask_failed(error, Fate::kMayLive, now_)
         : step_.kind == Kind::kFetch ? search_.on_fetch_failed(error, Fate::kMayLive, now_)
                                      : search_.on_seek_failed(error, now_);
}

void NameModel::refuse() {
  if (step_.kind == Kind::kSeek || alive_ != step_.worker.incarnation.value) return;
  take(fail(absl::ResourceExhaustedError("too many ask")));
  if (!is_over()) wrong_ = "it goes on after a refusal";
}

void NameModel::evict() {
  take(fail(absl::AbortedError("evicted")));
  if (!is_over()) wrong_ = "it goes on after its worker's eviction";
}

void NameModel::take(Step step) {
  const bool was_fetching = step_.kind == Kind::kFetch;
  const bool has_fetched = was_fetching && object_ == Object::kPublished &&
                           alive_ == step_.worker.incarnation.value && !at_deadline();
  step_ = std::move(step);
  asked_at_ = now_;
  const bool is_sent = step_.kind == Kind::kAsk || step_.kind == Kind::kFetch;
  if (is_sent && step_.worker.incarnation.value == told_lost_) {
    wrong_ = "it talks to an incarnation that was lost";
  }
  if (is_sent && at_deadline()) wrong_ = "it goes on after the deadline";
  if (is_over() && step_.kind != Kind::kSucceed && !may_fail_ && !at_deadline())
    wrong_ = "it fails without need";
  if (step_.kind == Kind::kSucceed && !has_fetched) wrong_ = "it has nothing and says it has";
  if (hasty_denials_ > 1) wrong_ = "it asks again and again";
  if (vanished_ > NameSearch::kMostVanished + 1) wrong_ = "it chases what vanishes";
  if (is_sent) asked_ = step_.worker.incarnation.value;
  for (std::uint64_t other = 1; other <= static_cast<std::uint64_t>(born_); ++other) {
    if (step_.kind == Kind::kFail && other != asked_ &&
        absl::StrContains(step_.error.message(), other_name(other))) {
      wrong_ = "it says of one incarnation what another one had";
    }
  }
}

std::string NameModel::broken() const { return wrong_; }

std::string NameModel::settle() const {
  const std::string in_vain = settle_in_vain();
  if (!in_vain.empty()) return in_vain;
  NameModel model = *this;
  if (model.is_over() || at_deadline() || world_.is_hasty) return "";
  // It has come to stay.
  if (model.alive_ == 0) model.alive_ = static_cast<std::uint64_t>(++model.born_);
  while (model.known_ != model.alive_) model.hear();
  model.object_ = Object::kPublished;
  for (int turn = 0; turn < 50 && !model.is_over(); ++turn) {
    if (model.respond()) continue;
    if (!model.is_pausing()) return "it waits though all is there";
    model.tick();
    // All was there for as long as there was time.
    if (model.at_deadline()) return "";
  }
  if (!model.wrong_.empty()) return model.wrong_;
  return model.step_.kind == Kind::kSucceed ? "" : "all is there, and it does not find it";
}

std::string NameModel::settle_in_vain() const {
  if (!world_.has_deadline) return "";
  NameModel model = *this;
  for (int turn = 0; turn < 50 && !model.is_over(); ++turn) {
    if (!model.respond()) model.tick();
  }
  if (!model.wrong_.empty()) return model.wrong_;
  return model.is_over() ? "" : "it does not end at its deadline";
}

std::string NameModel::key() const {
  std::string key;
  search_.append_key(key);
  const bool is_held = step_.kind == Kind::kAsk || is_pausing();
  const bool held_out = is_held && now_ >= asked_at_ + step_.hold;
  absl::StrAppend(&key, "|", static_cast<int>(step_.kind), step_.worker.incarnation.value, ",",
                  alive_, born_, known_, static_cast<int>(object_), ",", changes_left_,
                  silences_left_, ",", told_lost_, asked_, may_fail_, hasty_denials_, ",",
                  vanished_, ",", held_out, wrong_);
  if (world_.has_deadline) absl::StrAppend(&key, "@", (deadline_ - now_) / 1ms);
  return key;
}

std::string explore(const NameWorld& world, std::size_t* states) {
  return explore_from(NameModel(world), states);
}

}  // namespace sinew::internal::sim
