#include "sinew/rpc/membership/seed_round.h"

#include "absl/strings/str_cat.h"

namespace sinew::internal {
namespace {

constexpr std::size_t kMostFailures = 3;

}  // namespace

std::vector<std::string> SeedRound::on_resolved(
    std::size_t seed, const absl::StatusOr<std::vector<std::string>>& addresses,
    const std::string& own) {
  Seed& resolved = seeds_[seed];
  std::vector<std::string> to_ask;
  if (resolved.is_resolved) return to_ask;
  resolved.is_resolved = true;
  resolved.unknown = addresses.status();
  if (!addresses.ok()) return to_ask;
  for (const std::string& address : *addresses) {
    if (address == own || asks(address) || resolved.places.size() == kMostPerSeed) continue;
    resolved.places.push_back({address, std::nullopt});
    to_ask.push_back(address);
  }
  return to_ask;
}

bool SeedRound::asks(const std::string& address) const {
  for (const Seed& seed : seeds_) {
    for (const Place& place : seed.places) {
      if (place.address == address) return true;
    }
  }
  return false;
}

void SeedRound::on_answer(const std::string& address, const absl::StatusOr<Greeting>& greeting) {
  for (Seed& seed : seeds_) {
    for (Place& place : seed.places) {
      if (place.address == address && !place.answer.has_value()) place.answer = greeting;
    }
  }
}

bool SeedRound::is_done() const {
  for (const Seed& seed : seeds_) {
    if (!seed.is_resolved) return false;
    for (const Place& place : seed.places) {
      if (!place.answer.has_value()) return false;
    }
  }
  return true;
}

std::vector<std::string> SeedRound::members() const {
  std::vector<std::string> members;
  for (const Seed& seed : seeds_) {
    for (const Place& place : seed.places) {
      if (!place.answer.has_value() || !place.answer->ok()) continue;
      if (!(*place.answer)->waits_to_found) members.push_back(place.address);
    }
  }
  return members;
}

absl::Status SeedRound::conflict() const {
  const Place* first = nullptr;
  for (const Seed& seed : seeds_) {
    for (const Place& place : seed.places) {
      const bool knows_job =
          place.answer.has_value() && place.answer->ok() && (*place.answer)->instance.valid();
      if (!knows_job) continue;
      if (first == nullptr) first = &place;
      const JobInstance& one = (*first->answer)->instance;
      const JobInstance& other = (*place.answer)->instance;
      if (one == other) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("the job has been founded twice: who answers at '", first->address,
                       "' is in instance ", to_string(one), " of it, who answers at '",
                       place.address, "' in instance ", to_string(other), "; end one of the two"));
    }
  }
  return absl::OkStatus();
}

absl::Status SeedRound::refusal() const {
  absl::Status refusal;
  for (const Seed& seed : seeds_) {
    if (seed.places.empty()) return absl::OkStatus();
    for (const Place& place : seed.places) {
      if (!place.answer.has_value() || !is_refusal(place.answer->status())) {
        return absl::OkStatus();
      }
      if (refusal.ok()) refusal = place.answer->status();
    }
  }
  return refusal;
}

std::size_t SeedRound::asked() const {
  std::size_t asked = 0;
  for (const Seed& seed : seeds_) asked += seed.places.size();
  return asked;
}

std::size_t SeedRound::empty() const {
  std::size_t empty = 0;
  for (const Seed& seed : seeds_) {
    for (const Place& place : seed.places) {
      if (place.answer.has_value() && absl::IsNotFound(place.answer->status())) ++empty;
    }
  }
  return empty;
}

std::string SeedRound::failures() const {
  std::string text;
  std::size_t shown = 0;
  const auto add = [&](const std::string& failure) {
    if (shown++ < kMostFailures) absl::StrAppend(&text, text.empty() ? "" : "; ", failure);
  };
  for (const Seed& seed : seeds_) {
    if (!seed.unknown.ok()) add(std::string(seed.unknown.message()));
    for (const Place& place : seed.places) {
      if (!place.answer.has_value()) {
        add(absl::StrCat("'", place.address, "' has not answered yet"));
      } else if (!place.answer->ok()) {
        add(absl::StrCat("'", place.address, "' said: ", place.answer->status().message()));
      } else if ((*place.answer)->waits_to_found) {
        add(absl::StrCat("'", place.address, "' waits to found the job"));
      }
    }
  }
  return text;
}

}  // namespace sinew::internal
