#include "sinew/tests/publication/model.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <unordered_set>

#include "absl/strings/str_cat.h"

namespace sinew::internal::sim {

using Do = SubscriptionState::Do;
using Kind = PublicationModel::Event::Kind;

namespace {

constexpr int kGarbage = -1;
constexpr int kMostSteps = 3000;

std::string text_of(const PublicationModel::Event& event) {
  static constexpr const char* kNames[] = {
      "publish",     "kill writer", "start writer",      "kill reader", "start reader",
      "notice loss", "message",     "corrupted message", "new worker",  "lie"};
  return absl::StrCat(kNames[static_cast<int>(event.kind)], " ", event.reader, ".", event.message);
}

}  // namespace

PublicationModel::PublicationModel(const PublicationWorld& world) : left_(world), world_(world) {
  start_writer();
  readers_.resize(world.pods.size());
  for (std::size_t i = 0; i < readers_.size(); ++i) start_reader(i);
}

std::string PublicationModel::digest_of(const Content& content) {
  return absl::StrCat(content.first, ".", content.second);
}

void PublicationModel::start_writer() {
  const std::uint64_t run = next_run_++;
  writer_.clear();
  writer_.push_back(Writer{run, {0, 0}, PublicationTable(run, "w", world_.fan_out, 0)});
}

void PublicationModel::start_reader(std::size_t index) {
  Reader reader;
  reader.id = next_reader_++;
  reader.state = SubscriptionState(reader.id);
  readers_[index] = std::move(reader);
  static_cast<void>(take(index, readers_[index].state.begin(), 0, std::nullopt));
}

std::string PublicationModel::take(std::size_t index, const Step& step,
                                   SubscriptionState::Attempt attempt,
                                   const std::optional<Content>& content) {
  Reader& reader = readers_[index];
  if (attempt != reader.last && step.what != Do::kNothing) {
    return absl::StrCat("reader ", index, " goes on with what is long over");
  }
  if (step.switched) {
    ++switches_;
    if (step.switched->number <= reader.number) {
      return absl::StrCat("reader ", index, " goes back from version ", reader.number, " to ",
                          step.switched->number);
    }
    reader.number = step.switched->number;
    if (content) reader.content = *content;
    if (digest_of(reader.content) != step.switched->digest ||
        reader.content.first != reader.content.second) {
      return absl::StrCat("reader ", index, " has ", digest_of(reader.content), " as version ",
                          step.switched->number, ", which is ", step.switched->digest);
    }
  }
  if (step.what == Do::kNothing) return "";
  reader.last = step.attempt;
  Message message{Message::Kind::kSeek, step.attempt, 0, {}, std::nullopt, step.what, {}, false};
  switch (step.what) {
    case Do::kSeek:
      break;
    case Do::kPause:
      message.kind = Message::Kind::kPause;
      break;
    case Do::kAsk:
      message.kind = Message::Kind::kAsk;
      message.ask = reader.state.ask(world_.pods[index]);
      break;
    default:
      message.kind = Message::Kind::kFetch;
      message.answer = reader.state.wanted();
      break;
  }
  // To whom it speaks, and of whose version: that of the last writer it has found.
  if (!reader.messages.empty()) message.run = reader.messages.back().run;
  reader.messages.push_back(std::move(message));
  return "";
}

std::vector<PublicationModel::Event> PublicationModel::events() const {
  std::vector<Event> all;
  if (writer_.empty()) {
    all.push_back({Kind::kStartWriter});
  } else {
    if (left_.publications > 0) all.push_back({Kind::kPublish});
    if (left_.writer_kills > 0) all.push_back({Kind::kKillWriter});
  }
  for (std::size_t i = 0; i < readers_.size(); ++i) {
    const Reader& reader = readers_[i];
    if (!reader.is_alive) {
      all.push_back({Kind::kStartReader, i});
      continue;
    }
    if (left_.reader_kills > 0) all.push_back({Kind::kKillReader, i});
    if (left_.new_workers > 0) all.push_back({Kind::kNewWorker, i});
    for (std::size_t m = 0; m < reader.messages.size(); ++m) {
      const Message::Kind kind = reader.messages[m].kind;
      if (kind == Message::Kind::kHeldAsk) {
        if (left_.lies > 0 && reader.state.has().number > 1) all.push_back({Kind::kLie, i, m});
        continue;
      }
      all.push_back({Kind::kMessage, i, m});
      if (kind == Message::Kind::kFetch && left_.corruptions > 0) {
        all.push_back({Kind::kCorruptedMessage, i, m});
      }
    }
  }
  for (std::size_t i = 0; i < unnoticed_.size(); ++i) all.push_back({Kind::kNoticeLoss, i});
  return all;
}

void PublicationModel::publish() {
  Writer& writer = writer_.front();
  const int id = next_content_++;
  writer.content = {id, id};
}

std::string PublicationModel::apply(const Event& event) {
  PublicationTable::Answers answers;
  switch (event.kind) {
    case Kind::kPublish:
      --left_.publications;
      publish();
      writer_.front().table.on_published(writer_.front().table.reserve(),
                                         digest_of(writer_.front().content), now_, answers);
      return check_answers(answers);
    case Kind::kKillWriter:
      --left_.writer_kills;
      for (Reader& reader : readers_) {
        for (Message& each : reader.messages) {
          if (each.kind == Message::Kind::kHeldAsk) each.kind = Message::Kind::kAskFailed;
        }
      }
      writer_.clear();
      unnoticed_.clear();
      return "";
    case Kind::kStartWriter:
      start_writer();
      return "";
    case Kind::kKillReader: {
      --left_.reader_kills;
      Reader& reader = readers_[event.reader];
      reader.is_alive = false;
      reader.messages.clear();
      if (!writer_.empty()) unnoticed_.push_back(reader.id);
      return "";
    }
    case Kind::kStartReader:
      start_reader(event.reader);
      return "";
    case Kind::kNoticeLoss: {
      const std::uint64_t id = unnoticed_[event.reader];
      unnoticed_.erase(unnoticed_.begin() + static_cast<std::ptrdiff_t>(event.reader));
      if (writer_.empty()) return "";
      writer_.front().table.on_left(id, now_, answers);
      return check_answers(answers);
    }
    case Kind::kNewWorker: {
      --left_.new_workers;
      Reader& reader = readers_[event.reader];
      // What it has asked comes to nobody, and what others have sent may come late.
      for (Message& each : reader.messages) {
        const bool is_ask =
            each.kind == Message::Kind::kAsk || each.kind == Message::Kind::kHeldAsk;
        if (is_ask) each.kind = Message::Kind::kAskFailed;
      }
      if (!writer_.empty()) unnoticed_.push_back(reader.id);
      reader.id = next_reader_++;
      reader.failed.clear();
      return take(event.reader, reader.state.on_new_worker(reader.id), reader.last, std::nullopt);
    }
    case Kind::kLie: {
      --left_.lies;
      Message& held = readers_[event.reader].messages[event.message];
      held.kind = Message::Kind::kAnswer;
      held.is_lie = true;
      held.answer = PublicationTable::Answer{
          readers_[event.reader].id, {held.run, 1, "1.1"}, PublicationTable::kWriter, false};
      return "";
    }
    case Kind::kMessage:
      return deliver(event.reader, event.message, false);
    case Kind::kCorruptedMessage:
      --left_.corruptions;
      return deliver(event.reader, event.message, true);
  }
  return "?";
}

std::string PublicationModel::deliver(std::size_t index, std::size_t which, bool is_corrupted) {
  Reader& reader = readers_[index];
  Message message = reader.messages[which];
  const bool is_writer_there = !writer_.empty() && writer_.front().run == message.run;
  if (message.kind == Message::Kind::kAsk && is_writer_there) {
    reader.messages[which].kind = Message::Kind::kHeldAsk;
    PublicationTable::Answers answers;
    writer_.front().table.on_ask(message.ask, now_, answers);
    return check_answers(answers);
  }
  if (message.kind == Message::Kind::kFetch) {
    reader.messages.erase(reader.messages.begin() + static_cast<std::ptrdiff_t>(which));
    return fetch(index, std::move(message), is_corrupted);
  }
  // What follows speaks of the same writer.
  if (message.kind == Message::Kind::kSeek) {
    message.run = writer_.empty() ? 0 : writer_.front().run;
  }
  reader.messages.erase(reader.messages.begin() + static_cast<std::ptrdiff_t>(which));
  Step step;
  switch (message.kind) {
    case Message::Kind::kSeek:
      step = message.run != 0 ? reader.state.on_found(message.attempt)
                              : reader.state.on_not_found(message.attempt);
      break;
    case Message::Kind::kPause:
      step = reader.state.on_pause_over(message.attempt);
      break;
    case Message::Kind::kAnswer:
      step = reader.state.on_answer(message.attempt, message.answer);
      break;
    default:
      step = reader.state.on_ask_failed(message.attempt);
      break;
  }
  const std::size_t before = reader.messages.size();
  const std::string fault = take(index, step, message.attempt, std::nullopt);
  if (reader.messages.size() > before) {
    reader.messages.back().run = message.run;
    reader.messages.back().is_lie = message.is_lie;
  }
  return fault;
}

std::optional<PublicationModel::Content> PublicationModel::content_at(std::uint64_t source,
                                                                      std::uint64_t run) const {
  if (source == PublicationTable::kWriter) {
    if (writer_.empty() || writer_.front().run != run) return std::nullopt;
    return writer_.front().content;
  }
  for (std::size_t i = 0; i < readers_.size(); ++i) {
    if (readers_[i].id != source || !readers_[i].is_alive) continue;
    if (static_cast<int>(i) == world_.bad_reader) return Content{kGarbage, kGarbage};
    return readers_[i].content;
  }
  return std::nullopt;
}

std::string PublicationModel::fetch(std::size_t index, Message message, bool is_corrupted) {
  const std::optional<Content> from = content_at(message.answer->source, message.run);
  if (!from) return finish(index, message, std::nullopt);
  Content got = message.is_lie ? Content{1, 1} : *from;
  if (is_corrupted) got = {kGarbage, kGarbage};
  if (message.how == Do::kFetchWhole) {
    message.parts.push_back(message.parts.empty() ? got.first : got.second);
    if (message.parts.size() < 2) {
      readers_[index].messages.push_back(std::move(message));
      return "";
    }
    return finish(index, message, Content{message.parts[0], message.parts[1]});
  }
  if (message.how == Do::kFetchChanges && world_.has_bad_changes) got.second = kGarbage;
  return finish(index, message, got);
}

std::string PublicationModel::finish(std::size_t index, const Message& message,
                                     const std::optional<Content>& content) {
  Reader& reader = readers_[index];
  const std::uint64_t source = message.answer->source;
  const std::string digest = message.answer->version.digest;
  if (message.how != Do::kFetchChanges && message.attempt == reader.last &&
      (!content || digest_of(*content) != digest)) {
    reader.failed.insert({digest, source});
  }
  const Step step =
      content ? reader.state.on_fetched(message.attempt, digest_of(*content))
              : reader.state.on_fetch_failed(message.attempt, SubscriptionState::Fault::kLost);
  const std::size_t before = reader.messages.size();
  const std::string fault = take(index, step, message.attempt, content);
  if (reader.messages.size() > before) reader.messages.back().run = message.run;
  return fault;
}

std::string PublicationModel::check_answers(const PublicationTable::Answers& answers) {
  for (const PublicationTable::Answer& answer : answers) {
    for (std::size_t i = 0; i < readers_.size(); ++i) {
      Reader& reader = readers_[i];
      if (reader.id != answer.reader || !reader.is_alive) continue;
      for (Message& each : reader.messages) {
        if (each.kind != Message::Kind::kHeldAsk || each.run != writer_.front().run) continue;
        each.kind = Message::Kind::kAnswer;
        each.answer = answer;
        break;
      }
      if (answer.source > PublicationTable::kWriter &&
          reader.failed.count({answer.version.digest, answer.source}) > 0) {
        return absl::StrCat("reader ", i, " is sent again to who has failed it");
      }
    }
    for (const Reader& source : readers_) {
      if (source.id == answer.source && source.is_alive &&
          digest_of(source.content) != answer.version.digest) {
        return absl::StrCat("a reader is sent to who has ", digest_of(source.content), ", for ",
                            answer.version.digest);
      }
    }
  }
  return check_fan_out();
}

std::string PublicationModel::check_fan_out() const {
  if (time_has_passed_ || world_.new_workers > 0) return "";
  std::map<std::uint64_t, std::size_t> served;
  for (const Reader& reader : readers_) {
    for (const Message& each : reader.messages) {
      const bool is_told = each.kind == Message::Kind::kAnswer && each.answer &&
                           each.answer->source != PublicationTable::kNobody &&
                           !each.answer->is_shared;
      const bool fetches = each.kind == Message::Kind::kFetch && each.how != Do::kShare;
      if ((is_told || fetches) && !writer_.empty() && each.run == writer_.front().run) {
        ++served[each.answer->source];
      }
    }
  }
  for (const auto& [source, count] : served) {
    if (count > world_.fan_out) return absl::StrCat("a source serves ", count, " at once");
  }
  return "";
}

void PublicationModel::allow(const PublicationWorld& more) {
  left_.publications = more.publications;
  left_.writer_kills = more.writer_kills;
  left_.reader_kills = more.reader_kills;
  left_.corruptions = more.corruptions;
  left_.new_workers = more.new_workers;
  left_.lies = more.lies;
}

std::string PublicationModel::settle() {
  left_.writer_kills = left_.reader_kills = left_.corruptions = 0;
  left_.new_workers = left_.lies = left_.publications = 0;
  left_.publications = 1;
  for (int steps = 0; steps < kMostSteps; ++steps) {
    const std::vector<Event> all = events();
    if (all.empty()) break;
    // Whoever is out starts first, then there is the last version, and then one after the other.
    const auto urgent = std::find_if(all.begin(), all.end(), [](const Event& each) {
      return each.kind == Kind::kStartWriter || each.kind == Kind::kStartReader ||
             each.kind == Kind::kNoticeLoss || each.kind == Kind::kPublish;
    });
    const Event& next =
        urgent != all.end() ? *urgent : all[static_cast<std::size_t>(steps) % all.size()];
    if (std::string fault = apply(next); !fault.empty()) return fault;
  }
  const VersionLabel& newest = writer_.front().table.current();
  for (std::size_t i = 0; i < readers_.size(); ++i) {
    if (readers_[i].state.has() == newest) continue;
    return absl::StrCat("reader ", i, " stays at version ", readers_[i].state.has().number, " (",
                        readers_[i].state.has().digest, "), and ", newest.number, " (",
                        newest.digest, ") is the newest");
  }
  return "";
}

std::string PublicationModel::fingerprint() const {
  std::string text = absl::StrCat(left_.publications, left_.writer_kills, left_.reader_kills,
                                  left_.corruptions, left_.new_workers, left_.lies);
  const auto label = [](const VersionLabel& version) {
    return absl::StrCat(version.run, ":", version.number, ":", version.digest);
  };
  for (const Writer& writer : writer_) {
    absl::StrAppend(&text, "|w", writer.run, label(writer.table.current()), ",",
                    writer.content.first, ",", PublicationTable(writer.table).reserve());
    for (const auto& [id, each] : writer.table.readers()) {
      absl::StrAppend(&text, ";", id, each.pod, label(each.has), each.is_waiting, each.source,
                      each.is_shared, each.fetches, "!");
      for (const std::uint64_t avoided : each.avoided) absl::StrAppend(&text, avoided, ",");
    }
  }
  for (const Reader& reader : readers_) {
    absl::StrAppend(&text, "|r", reader.is_alive, reader.id, label(reader.state.has()),
                    digest_of(reader.content), static_cast<int>(reader.state.doing()),
                    reader.state.ask("p").failed, reader.state.ask("p").pod, ",",
                    reader.state.wanted().source, label(reader.state.wanted().version));
    for (const Message& each : reader.messages) {
      absl::StrAppend(&text, ";", static_cast<int>(each.kind), ",", reader.last - each.attempt, ",",
                      each.run, ",", static_cast<int>(each.how), each.is_lie, label(each.ask.has),
                      each.ask.failed, each.ask.pod, ",");
      if (each.answer) {
        absl::StrAppend(&text, label(each.answer->version), each.answer->source,
                        each.answer->is_shared);
      }
      for (const int part : each.parts) absl::StrAppend(&text, "+", part);
    }
  }
  for (const std::uint64_t id : unnoticed_) absl::StrAppend(&text, "|u", id);
  return text;
}

std::string explore(const PublicationWorld& world, std::size_t* states) {
  struct Node {
    PublicationModel model;
    std::string way;
  };
  std::unordered_set<std::string> seen;
  std::deque<std::unique_ptr<Node>> open;
  open.push_back(std::make_unique<Node>(Node{PublicationModel(world), ""}));
  seen.insert(open.back()->model.fingerprint());
  while (!open.empty()) {
    const std::unique_ptr<Node> node = std::move(open.front());
    open.pop_front();
    PublicationModel settled = node->model;
    if (std::string fault = settled.settle(); !fault.empty()) {
      return absl::StrCat(fault, " (after", node->way, ")");
    }
    for (const PublicationModel::Event& event : node->model.events()) {
      auto next = std::make_unique<Node>(*node);
      absl::StrAppend(&next->way, ", ", text_of(event));
      if (std::string fault = next->model.apply(event); !fault.empty()) {
        return absl::StrCat(fault, " (after", next->way, ")");
      }
      if (seen.insert(next->model.fingerprint()).second) open.push_back(std::move(next));
    }
  }
  if (states != nullptr) *states = seen.size();
  return "";
}

SimulationResult simulate(const PublicationWorld& world, std::uint64_t seed, std::size_t kills) {
  SimulationResult result;
  std::mt19937_64 random(seed);
  PublicationModel model(world);
  while (result.kills < kills) {
    model.allow(world);
    for (int steps = 0; steps < 80; ++steps) {
      std::vector<PublicationModel::Event> all = model.events();
      // What is a fault is drawn less often than what is none.
      const auto is_fault = [](const PublicationModel::Event& each) {
        return each.kind == Kind::kKillWriter || each.kind == Kind::kKillReader ||
               each.kind == Kind::kCorruptedMessage || each.kind == Kind::kNewWorker ||
               each.kind == Kind::kLie;
      };
      if (random() % 8 != 0) {
        all.erase(std::remove_if(all.begin(), all.end(), is_fault), all.end());
      }
      if (all.empty()) break;
      const PublicationModel::Event event = all[random() % all.size()];
      const bool is_kill = event.kind == Kind::kKillWriter || event.kind == Kind::kKillReader;
      result.kills += is_kill ? 1 : 0;
      result.fault = model.apply(event);
      if (!result.fault.empty()) return result;
    }
    result.fault = model.settle();
    if (!result.fault.empty()) return result;
    ++result.settled;
    result.switches = model.switches();
  }
  return result;
}

namespace {

PublicationWorld named(const char* name, std::vector<std::string> pods) {
  PublicationWorld world;
  world.name = name;
  world.pods = std::move(pods);
  return world;
}

std::vector<PublicationWorld> make_worlds() {
  std::vector<PublicationWorld> worlds;
  PublicationWorld world = named("one reader, and the writer is killed", {"a"});
  world.publications = 2;
  world.writer_kills = 2;
  world.reader_kills = 1;
  worlds.push_back(world);
  world = named("one reader on the writer's host", {"w"});
  world.publications = 2;
  world.writer_kills = 1;
  world.corruptions = 2;
  worlds.push_back(world);
  world = named("corruption", {"", ""});
  world.publications = 2;
  world.corruptions = 2;
  worlds.push_back(world);
  world = named("two readers, one served at once", {"", ""});
  world.publications = 2;
  world.reader_kills = 1;
  worlds.push_back(world);
  world = named("two readers of one other host", {"a", "a"});
  world.publications = 1;
  world.reader_kills = 1;
  world.writer_kills = 1;
  worlds.push_back(world);
  world = named("three readers", {"a", "a", ""});
  world.publications = 1;
  world.reader_kills = 1;
  worlds.push_back(world);
  world = named("changes that never fit", {""});
  world.publications = 3;
  world.has_bad_changes = true;
  worlds.push_back(world);
  world = named("a reader that hands out what is wrong", {"a", "a"});
  world.publications = 2;
  world.bad_reader = 0;
  worlds.push_back(world);
  world = named("a worker that comes back", {"a"});
  world.publications = 2;
  world.new_workers = 1;
  worlds.push_back(world);
  world = named("a writer that has not noticed its end", {""});
  world.publications = 3;
  world.lies = 1;
  worlds.push_back(world);
  return worlds;
}

PublicationWorld make_many() {
  PublicationWorld world = named("many readers", {"w", "", "a", "a", "b", "b", "b", ""});
  world.fan_out = 2;
  world.publications = 6;
  world.writer_kills = 2;
  world.reader_kills = 6;
  world.corruptions = 4;
  world.new_workers = 1;
  world.lies = 1;
  return world;
}

}  // namespace

const std::vector<PublicationWorld> kPublicationWorlds = make_worlds();
const PublicationWorld kManyReaders = make_many();

}  // namespace sinew::internal::sim
