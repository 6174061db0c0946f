#include "client_observers.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace rl {
namespace {

constexpr std::size_t kMostClients = 64;

}  // namespace

void ClientObservers::add(std::int64_t id, const std::string& name) {
  if (clients_.size() >= kMostClients) {
    throw std::invalid_argument("the agent has " + std::to_string(kMostClients) +
                                " clients, and takes no more");
  }
  clients_[id].name = name;
}

sinew::Future<std::int64_t> ClientObservers::next_episode(std::int64_t id) {
  Client& waiting = client(id);
  if (is_over_) return sinew::make_ready_future(std::int64_t{0});
  waiting.plays = false;
  waiting.gives_up = sinew::CallContext::current().cancellation();
  return waiting.waits.emplace().future();
}

void ClientObservers::step(std::int64_t id) {
  const auto found = clients_.find(id);
  if (found != clients_.end()) ++found->second.steps;
}

void ClientObservers::end_episode(std::int64_t id) {
  client(id).plays = false;
  if (playing() == 0 && played_) std::exchange(played_, std::nullopt)->set_value();
}

ClientNews ClientObservers::begin(std::int64_t max_steps) {
  ClientNews news;
  for (auto at = clients_.begin(); at != clients_.end();) {
    Client& one = at->second;
    one.steps = one.seen_steps = 0;
    if (one.waits && one.gives_up.is_cancelled()) {
      at = lose(at, news);
      continue;
    }
    if (one.waits) {
      one.plays = true;
      std::exchange(one.waits, std::nullopt)->set_value(max_steps);
      if (!std::exchange(one.is_told, true)) news.joined.push_back(one.name);
    }
    ++at;
  }
  news.playing = playing();
  return news;
}

sinew::Future<void> ClientObservers::played() {
  if (playing() == 0) return sinew::make_ready_future();
  return played_.emplace().future();
}

ClientNews ClientObservers::drop_silent() {
  ClientNews news;
  for (auto at = clients_.begin(); at != clients_.end();) {
    Client& one = at->second;
    const bool is_silent = one.plays && one.steps == std::exchange(one.seen_steps, one.steps);
    at = is_silent ? lose(at, news) : std::next(at);
  }
  news.playing = playing();
  news.steps = steps();
  return news;
}

void ClientObservers::dismiss() {
  is_over_ = true;
  for (auto& [id, one] : clients_) {
    if (one.waits) std::exchange(one.waits, std::nullopt)->set_value(0);
  }
}

std::vector<std::int64_t> ClientObservers::take_lost() { return std::exchange(lost_, {}); }

ClientObservers::Client& ClientObservers::client(std::int64_t id) {
  const auto found = clients_.find(id);
  if (found != clients_.end()) return found->second;
  throw std::invalid_argument("the agent has no client " + std::to_string(id));
}

std::int64_t ClientObservers::playing() const {
  return std::count_if(clients_.begin(), clients_.end(),
                       [](const auto& each) { return each.second.plays; });
}

std::int64_t ClientObservers::steps() const {
  std::int64_t steps = 0;
  for (const auto& [id, one] : clients_) steps += one.plays ? 0 : one.steps;
  return steps;
}

ClientObservers::Position ClientObservers::lose(Position client, ClientNews& news) {
  if (client->second.is_told) news.lost.push_back(client->second.name);
  lost_.push_back(client->first);
  return clients_.erase(client);
}

}  // namespace rl
