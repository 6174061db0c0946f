#include "sinew/optim/internal/publication_table.h"

#include <algorithm>

#include "sinew/optim/internal/publication_bugs.h"

namespace sinew::internal {

void PublicationTable::on_published(std::uint64_t number, const std::string& digest, Time now,
                                    Answers& answers) {
  // Others may have passed it since it was reserved, and readers must not go back.
  if (number <= told_) number = reserve();
  told_ = number;
  current_ = {run_, number, digest};
  for (auto& [id, reader] : readers_) reader.avoided.clear();
  if (!SINEW_PUBLICATION_BUG(kWakesNobody)) answer_all(now, answers);
}

void PublicationTable::on_ask(const Ask& ask, Time now, Answers& answers) {
  Reader& reader = readers_[ask.reader];
  reader.pod = ask.pod;
  reader.has = ask.has;
  reader.is_waiting = true;
  reader.source = kNobody;
  if (ask.failed != kNobody && !SINEW_PUBLICATION_BUG(kTrustsFailed)) {
    reader.avoided.insert(ask.failed);
  }
  // Another writer has told it that number: the next one here is above it, also if there is none
  // yet. What is published already has a new number then, and the same bytes.
  const bool is_passed = ask.has.number >= current_.number &&
                         !(ask.has.run == run_ && ask.has.number == current_.number);
  if (is_passed && !SINEW_PUBLICATION_BUG(kIgnoresOthersNumbers)) {
    told_ = std::max(told_, ask.has.number);
    if (current_.number > 0) current_.number = told_ = reserve();
  }
  // It may be what others wait for, or have made room for them.
  answer_all(now, answers);
}

bool PublicationTable::on_overdue(ReaderId reader) {
  const auto found = readers_.find(reader);
  return found != readers_.end() && std::exchange(found->second.is_waiting, false);
}

void PublicationTable::on_left(ReaderId reader, Time now, Answers& answers) {
  if (SINEW_PUBLICATION_BUG(kKeepsSlotsOfTheLost)) {
    const auto found = readers_.find(reader);
    if (found == readers_.end()) return;
    found->second.is_waiting = false;
    found->second.since = Time::max() - kMostFetch;
  } else {
    readers_.erase(reader);
  }
  answer_all(now, answers);
}

PublicationTable::Time PublicationTable::next_time(Time now) const {
  bool is_awaited = false;
  Time next = Time::max();
  for (const auto& [id, reader] : readers_) {
    is_awaited = is_awaited || (reader.is_waiting && !has_current(reader));
    if (is_fetching(reader, now)) next = std::min(next, reader.since + kMostFetch);
  }
  return is_awaited && current_.number > 0 ? next : Time::max();
}

void PublicationTable::answer_all(Time now, Answers& answers) {
  if (current_.number == 0) return;
  for (auto& [id, reader] : readers_) {
    if (!reader.is_waiting) continue;
    const std::optional<Answer> found = answer(id, reader, now);
    if (!found) continue;
    reader.is_waiting = false;
    reader.source = found->source;
    reader.is_shared = found->is_shared;
    reader.fetches = found->version.digest;
    reader.since = now;
    // What it has from now on, without a word.
    if (found->source == kNobody) reader.has = found->version;
    answers.push_back(*found);
  }
}

std::optional<PublicationTable::Answer> PublicationTable::answer(ReaderId id, const Reader& reader,
                                                                 Time now) const {
  if (reader.has.run == run_ && reader.has.number == current_.number) return std::nullopt;
  if (reader.has.digest == current_.digest) return Answer{id, current_, kNobody, false};
  const std::optional<ReaderId> shared = shared_source(id, reader, now);
  if (!shared) return std::nullopt;
  if (*shared != kNobody) return Answer{id, current_, *shared, true};
  const ReaderId source = bytes_source(id, reader, now);
  if (source == kNobody) return std::nullopt;
  return Answer{id, current_, source, false};
}

std::optional<PublicationTable::ReaderId> PublicationTable::shared_source(ReaderId id,
                                                                          const Reader& reader,
                                                                          Time now) const {
  if (reader.pod.empty()) return kNobody;
  const auto may_take = [&](ReaderId source) { return reader.avoided.count(source) == 0; };
  if (reader.pod == pod_ && may_take(kWriter)) return kWriter;
  bool is_on_its_way = false;
  for (const auto& [other_id, other] : readers_) {
    if (other_id == id || other.pod != reader.pod || !may_take(other_id)) continue;
    if (has_current(other)) return other_id;
    is_on_its_way = is_on_its_way || (is_fetching(other, now) && other.fetches == current_.digest);
  }
  if (is_on_its_way) return std::nullopt;
  return kNobody;
}

// The writer first: each reader that it serves can serve others, so the tree is as flat as it can
// be.
PublicationTable::ReaderId PublicationTable::bytes_source(ReaderId id, const Reader& reader,
                                                          Time now) const {
  const std::size_t most = SINEW_PUBLICATION_BUG(kNoFanOut) ? readers_.size() : fan_out_;
  if (served_by(kWriter, now) < most && reader.avoided.count(kWriter) == 0) return kWriter;
  ReaderId best = kNobody;
  std::size_t fewest = most;
  for (const auto& [other_id, other] : readers_) {
    if (other_id == id || reader.avoided.count(other_id) > 0 || !has_current(other)) continue;
    const std::size_t served = served_by(other_id, now);
    if (served >= fewest) continue;
    best = other_id;
    fewest = served;
  }
  // The writer has failed it, but there is no other source.
  if (best == kNobody && served_by(kWriter, now) < most) return kWriter;
  return best;
}

bool PublicationTable::is_fetching(const Reader& reader, Time now) const {
  return reader.source != kNobody && now < reader.since + kMostFetch;
}

bool PublicationTable::has_current(const Reader& reader) const {
  if (SINEW_PUBLICATION_BUG(kServesStale)) return !reader.has.digest.empty();
  return reader.has.digest == current_.digest;
}

std::size_t PublicationTable::served_by(ReaderId source, Time now) const {
  return static_cast<std::size_t>(
      std::count_if(readers_.begin(), readers_.end(), [&](const auto& entry) {
        const Reader& reader = entry.second;
        return reader.source == source && !reader.is_shared && is_fetching(reader, now);
      }));
}

}  // namespace sinew::internal
