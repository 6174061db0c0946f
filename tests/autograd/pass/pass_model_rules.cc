#include <algorithm>

#include "absl/strings/str_cat.h"
#include "sinew/tests/autograd/pass/pass_model.h"
#include "sinew/tests/threads/support/explore.h"

namespace sinew::internal::sim {

std::string PassModel::broken() const { return wrong_; }

std::string PassModel::settle() const {
  if (!wrong_.empty()) return wrong_;
  PassModel model = *this;
  model.may_lose_ = false;
  for (int turn = 0; turn < 1000 && model.wrong_.empty(); ++turn) {
    if (!model.packets_.empty()) {
      model.arrive(0);
      continue;
    }
    int busy = -1;
    for (int i = 0; i < world_.workers; ++i) {
      if (model.workers_[i].alive && model.workers_[i].work != Work::kNone) busy = i;
    }
    if (busy < 0) break;
    model.run_ends(busy);
  }
  if (!model.wrong_.empty()) return model.wrong_;
  if (!model.packets_.empty()) return "it does not come to rest";
  if (!model.outcomes_.empty() && model.outcomes_.back() == Outcome::kPending) {
    return "backward() never ends";
  }
  return model.check_added();
}

std::string PassModel::check_added() const {
  for (int i = 0; i < world_.workers; ++i) {
    const Worker& worker = workers_[i];
    if (!worker.alive) continue;
    if (worker.book.running().has_value()) return "a pass stays";
    for (std::uint64_t serial = 1; serial <= outcomes_.size(); ++serial) {
      // Where the initiator is lost nobody asks any more: its contexts have ended.
      if (!workers_[shape(serial).initiator].alive) continue;
      const bool is_there = worker.added.count(serial) > 0;
      const bool is_due = outcomes_[serial - 1] == Outcome::kDone && takes_part(i, serial);
      if (is_there && !is_due) return "what a failed pass has added stays";
      if (is_due && !is_there) return "what a pass has added is lost";
    }
  }
  for (const auto& [call, made] : calls_) {
    if (workers_[made.from].alive && workers_[made.to].alive) return "a call is never answered";
  }
  return "";
}

std::string PassModel::Packet::key() const {
  std::string key =
      absl::StrCat(static_cast<int>(kind), ":", from, ">", to, "#", serial, "c", call,
                   static_cast<int>(answering), waits, static_cast<int>(outcome), "m");
  for (const std::uint64_t message : messages) absl::StrAppend(&key, message, ".");
  key += 'f';
  for (const std::uint64_t one : failed) absl::StrAppend(&key, one, ".");
  return key;
}

std::string PassModel::key() const {
  std::string key;
  for (const Worker& worker : workers_) {
    absl::StrAppend(&key, "\n", worker.alive, static_cast<int>(worker.work),
                    static_cast<int>(worker.failure), "p", worker.pass.serial, "a");
    for (const std::uint64_t pass : worker.added) absl::StrAppend(&key, pass, ".");
    for (const auto* numbers : {&worker.arrived, &worker.sent}) {
      key += '/';
      for (const std::uint64_t number : *numbers) absl::StrAppend(&key, number, ".");
    }
    for (const auto& [to, gradients] : worker.yield) {
      absl::StrAppend(&key, "y", to.value, "*", gradients.size());
    }
    for (const Incarnation to : worker.offered) absl::StrAppend(&key, "o", to.value);
    key += '=';
    worker.book.append_key(key);
    key += '=';
    if (worker.part.has_value()) worker.part->append_key(key);
  }
  std::vector<std::string> packets;
  for (const Packet& packet : packets_) packets.push_back(packet.key());
  std::sort(packets.begin(), packets.end());
  for (const Packet& packet : packets_) {
    if (packet.is_error()) packets.push_back(absl::StrCat("e", packet.call));
  }
  for (const std::string& packet : packets) absl::StrAppend(&key, "\n", packet);
  key += "\n";
  for (const Outcome outcome : outcomes_) absl::StrAppend(&key, static_cast<int>(outcome));
  for (const auto& [call, made] : calls_)
    absl::StrAppend(&key, "c", call, made.prepares, made.is_answered);
  absl::StrAppend(&key, "l", errors_left_, timeouts_left_, may_lose_, wrong_);
  return key;
}

std::string explore(const PassWorld& world, std::size_t* states) {
  return explore_from(PassModel(world), states);
}

}  // namespace sinew::internal::sim
