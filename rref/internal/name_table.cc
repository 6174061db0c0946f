#include "sinew/rref/internal/name_table.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/base/internal/nearest_names.h"
#include "sinew/rpc/base/worker_name.h"

namespace sinew::internal {
namespace {

constexpr std::size_t kMostNameBytes = 128;

}  // namespace

absl::Status validate_object_name(std::string_view name) {
  const std::string shown = printable(name, kMostNameBytes);
  if (name.empty()) return absl::InvalidArgumentError("the name of a published object is empty");
  if (name.size() > kMostNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the object name '", shown, "' has ",
                                                   name.size(), " characters; use at most ",
                                                   kMostNameBytes));
  }
  for (const char c : name) {
    if (is_name_character(c)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the object name '", shown, "' has the character '", printable(std::string_view(&c, 1), 8),
        "'; use letters, digits and '_', '.', ':', '-'"));
  }
  return absl::OkStatus();
}

// ---- Objects.

absl::StatusOr<NameTable::Changed> NameTable::publish(const std::string& name, Object object,
                                                      WhenTaken when_taken) {
  Object& place = objects_[name];
  if (place.handle != nullptr && when_taken == WhenTaken::kFail) {
    return absl::AlreadyExistsError(absl::StrFormat(
        "'%s' is published already, as a %s: unpublish() it first, or say WhenTaken::kReplace",
        name, place.type));
  }
  Changed changed;
  changed.dropped = std::exchange(place, std::move(object)).handle;
  for (auto each = waiters_.begin(); each != waiters_.end();) {
    const auto waiter = each++;
    if (waiter->second.name != name) continue;
    changed.satisfied.push_back(waiter->first);
    forget(waiter);
  }
  return changed;
}

std::shared_ptr<ReferenceHandle> NameTable::unpublish(std::string_view name) {
  const auto found = objects_.find(name);
  if (found == objects_.end()) return nullptr;
  std::shared_ptr<ReferenceHandle> handle = std::move(found->second.handle);
  objects_.erase(found);
  return handle;
}

absl::StatusOr<NameTable::Object> NameTable::find(const std::string& name) const {
  const auto found = objects_.find(name);
  if (found != objects_.end()) return found->second;
  return absl::NotFoundError(absl::StrFormat("nothing is published as '%s'; published: %s",
                                             printable(name, 128),
                                             nearest_names_text(name, names())));
}

absl::StatusOr<std::shared_ptr<ReferenceHandle>> NameTable::find(const std::string& name,
                                                                 const std::string& type) const {
  absl::StatusOr<Object> found = find(name);
  if (!found.ok()) return found.status();
  if (found->type == type) return std::move(found->handle);
  return absl::InvalidArgumentError(
      absl::StrFormat("what is published as '%s' is a %s, but was sought as a %s", name,
                      found->type, printable(type, 1024)));
}

std::vector<std::string> NameTable::nearest(const std::string& name) const {
  return nearest_names(name, names(), kMostNearest);
}

std::vector<std::string> NameTable::names() const {
  std::vector<std::string> names;
  names.reserve(objects_.size());
  for (const auto& [name, object] : objects_) names.push_back(name);
  return names;
}

// ---- Waiters.

absl::StatusOr<NameTable::WaiterId> NameTable::wait(const std::string& name, Incarnation from) {
  std::size_t& count = waiters_of_[from];
  if (count >= kMostWaitersOfOne) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%d questions for names wait here already, and one worker may have %d",
                        count, kMostWaitersOfOne));
  }
  ++count;
  const WaiterId waiter = ++last_waiter_;
  waiters_.emplace(waiter, Waiter{name, from});
  return waiter;
}

bool NameTable::end_wait(WaiterId waiter) {
  const auto found = waiters_.find(waiter);
  if (found == waiters_.end()) return false;
  forget(found);
  return true;
}

std::vector<NameTable::WaiterId> NameTable::end_waits_of(Incarnation from) {
  std::vector<WaiterId> ended;
  for (auto each = waiters_.begin(); each != waiters_.end();) {
    const auto waiter = each++;
    if (waiter->second.from != from) continue;
    ended.push_back(waiter->first);
    forget(waiter);
  }
  return ended;
}

void NameTable::forget(std::map<WaiterId, Waiter>::iterator waiter) {
  const auto count = waiters_of_.find(waiter->second.from);
  if (--count->second == 0) waiters_of_.erase(count);
  waiters_.erase(waiter);
}

NameTable::Remains NameTable::clear() {
  Remains remains;
  for (auto& [name, object] : objects_) remains.objects.push_back(std::move(object.handle));
  for (const auto& [waiter, wait] : waiters_) remains.waiters.push_back(waiter);
  objects_.clear();
  waiters_.clear();
  waiters_of_.clear();
  return remains;
}

}  // namespace sinew::internal
