#include "standbys.h"

#include <algorithm>
#include <utility>

namespace ps_rnn {
namespace {

const sinew::RemoteModule<EmbeddingTable>& table_at(const Served& served, std::int64_t shard) {
  return served.model.embedding[static_cast<std::size_t>(shard)];
}

/// Others may know of a loss first, so each server is asked.
std::vector<std::int64_t> lost_servers(const Served& served, std::int64_t epoch,
                                       std::int64_t done) {
  std::vector<std::int64_t> lost;
  const auto shards = static_cast<std::int64_t>(served.model.embedding.size());
  for (std::int64_t shard = 0; shard < shards; ++shard) {
    try {
      table_at(served, shard).module_rref().call<&EmbeddingTable::begin_round>(epoch, done);
    } catch (const sinew::RpcError& error) {
      if (error.code() != sinew::ErrorCode::kUnavailable) throw;
      lost.push_back(shard);
    }
  }
  return lost;
}

}  // namespace

Standbys::Standbys(const sinew::Worker& worker, const std::vector<Pair>& pairs,
                   const ModelSettings& settings, const sinew::optim::Options& options,
                   std::chrono::seconds patience)
    : worker_(worker), settings_(settings), options_(options), patience_(patience) {
  for (const Pair& pair : pairs) places_.emplace_back().pair = pair;
}

void Standbys::await(const Served& served) {
  for (std::size_t i = 0; i < places_.size(); ++i) {
    Place& place = places_[i];
    const auto shard = static_cast<std::int64_t>(i);
    const auto ready = worker_.find<std::string>(address(shard, served), patience_);
    begin_to_catch_up(shard, served, ready.peer());
    place.mirror = place.catching_up.get();
  }
}

std::string Standbys::address(std::int64_t shard, const Served& served) const {
  const Pair& pair = places_[static_cast<std::size_t>(shard)].pair;
  const bool is_at_home = table_at(served, shard).module_rref().owner_name() == pair.server;
  return (is_at_home ? pair.standby : pair.server) + "/" + kReady;
}

void Standbys::begin_to_catch_up(std::int64_t shard, const Served& served,
                                 const sinew::Peer& process) {
  const std::string owner = table_at(served, shard).module_rref().owner_name();
  places_[static_cast<std::size_t>(shard)].catching_up =
      std::async(std::launch::async, [shard, owner, process, optimizer = served.optimizer,
                                      shards = served.model.embedding.size(), settings = settings_,
                                      options = options_] {
        Mirror mirror;
        mirror.model.embedding.resize(shards);
        mirror.model.make_at(process, shard, settings);
        mirror.standby =
            sinew::optim::Standby(optimizer, owner, mirror.model.parameters_at(shard), options);
        return mirror;
      });
}

void Standbys::finish(Place& place) {
  if (!place.catching_up.valid()) return;
  try {
    place.mirror = place.catching_up.get();
  } catch (const sinew::RpcError&) {
    // One of the two was lost meanwhile. It is looked for again.
  }
}

void Standbys::look(const Served& served) {
  for (std::size_t i = 0; i < places_.size(); ++i) look_at(static_cast<std::int64_t>(i), served);
}

std::int64_t Standbys::count() const {
  return std::count_if(places_.begin(), places_.end(),
                       [](const Place& place) { return place.mirror.has_value(); });
}

void Standbys::look_at(std::int64_t shard, const Served& served) {
  Place& place = places_[static_cast<std::size_t>(shard)];
  if (place.mirror && !place.mirror->standby.alive()) place.mirror.reset();
  if (place.catching_up.valid() &&
      place.catching_up.wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
    finish(place);
  }
  if (place.mirror || place.catching_up.valid()) return;
  if (!place.ready.valid()) {
    place.ready = worker_.find_async<std::string>(address(shard, served), patience_);
  }
  if (!place.ready.done()) return;
  const auto ready = std::exchange(place.ready, {});
  if (ready.error() == nullptr) begin_to_catch_up(shard, served, ready.value().peer());
}

bool Standbys::take_over(Served& served, std::int64_t epoch, std::int64_t done) {
  if (places_.empty()) return false;
  const std::vector<std::int64_t> lost = lost_servers(served, epoch, done);
  if (lost.empty()) return false;
  std::vector<sinew::optim::Standby> standbys;
  for (const std::int64_t shard : lost) {
    Place& place = places_[static_cast<std::size_t>(shard)];
    finish(place);
    if (!place.mirror || !place.mirror->standby.alive()) return false;
    standbys.push_back(place.mirror->standby);
  }
  try {
    served.optimizer = sinew::optim::take_over(served.optimizer, standbys);
  } catch (const sinew::RpcError&) {
    // A standby that its owner had given up, or one more that is lost: a checkpoint is left.
    return false;
  }
  for (const std::int64_t shard : lost) {
    Place& place = places_[static_cast<std::size_t>(shard)];
    served.model.replace(shard, place.mirror->model);
    place.mirror.reset();
    place.ready = {};
  }
  return true;
}

void Standbys::forget() {
  for (Place& place : places_) {
    finish(place);
    place.mirror.reset();
    place.ready = {};
  }
}

}  // namespace ps_rnn
