#include "sinew/tests/chaos/counting.h"

#include <utility>

#include <torch/csrc/autograd/function.h>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "sinew/tests/chaos/chaos_methods.h"

namespace chaos {
namespace {

using Result = HistoryFile::Result;

/// Long enough for a call to one that is stopped to end by its loss.
constexpr std::chrono::seconds kCallTimeout{40};
/// Between two rounds of increments of all.
constexpr std::chrono::milliseconds kRoundPause{100};
/// A worker that is there has published its counter.
constexpr std::chrono::seconds kFindTimeout{5};
/// So many at once, which have an order.
constexpr int kBurst = 8;

}  // namespace

Counting::Counting(sinew::Worker worker, std::chrono::milliseconds pause, churn::Tally& tally)
    : worker_(std::move(worker)), pause_(pause), tally_(tally) {
  for (int i = 0; i < kThreads; ++i) {
    threads_.emplace_back([this, i] {
      run(std::mt19937_64(worker_.info().incarnation.value + static_cast<std::uint64_t>(i)));
    });
  }
  threads_.emplace_back([this] { run_together(); });
}

Counting::~Counting() {
  stopping_ = true;
  for (std::thread& thread : threads_) thread.join();
}

void Counting::run(std::mt19937_64 random) {
  const auto most = 2 * static_cast<std::uint64_t>(pause_.count()) + 1;
  while (!stopping_ && worker_.is_running()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % most));
    const std::vector<sinew::WorkerInfo> members = worker_.workers();
    if (members.empty()) continue;
    const sinew::WorkerInfo other = members[random() % members.size()];
    if (other == worker_.info()) continue;
    tell_errors(other, [&] { act(other, random() % 4); });
  }
}

void Counting::run_together() {
  std::size_t rounds = 0;
  while (!stopping_ && worker_.is_running()) {
    std::this_thread::sleep_for(kRoundPause);
    tell_errors(worker_.info(), [this] { increment_all(); });
    const std::vector<sinew::WorkerInfo> members = worker_.workers();
    if (members.empty()) continue;
    const sinew::WorkerInfo& other = members[rounds++ % members.size()];
    if (other == worker_.info()) continue;
    tell_errors(other, [&] { note_in_turn(other); });
    tell_errors(other, [&] { stream_to(other); });
  }
}

void Counting::increment_all() {
  struct Asked {
    sinew::WorkerInfo owner;
    std::string id;
    sinew::Future<std::int64_t> count;
  };
  std::vector<Asked> asked;
  for (const sinew::WorkerInfo& other : worker_.workers()) {
    if (other == worker_.info()) continue;
    const std::string id = begin(counter_of(other));
    const sinew::Peer peer = worker_.peer(other).within(kCallTimeout);
    asked.push_back({other, id, peer.async<&increment_and_answer_late>(id)});
  }
  for (const Asked& one : asked) {
    tell_errors(one.owner,
                [&] { finish(counter_of(one.owner), one.id, [&] { one.count.wait(); }); });
  }
}

void Counting::note_in_turn(const sinew::WorkerInfo& other) {
  const auto diary = worker_.find<Diary>(other.name + "/diary", kFindTimeout).within(kCallTimeout);
  const std::string target = diary_of(diary.owner());
  std::vector<std::pair<std::string, sinew::Future<void>>> asked;
  for (int i = 0; i < kBurst; ++i) {
    const std::string id = begin(target);
    asked.emplace_back(id, diary.async<&Diary::note>(id));
  }
  for (const auto& [id, note] : asked) {
    tell_errors(other, [&, &id = id, &note = note] { finish(target, id, [&] { note.wait(); }); });
  }
}

// Only when all are acknowledged it is known of any.
void Counting::stream_to(const sinew::WorkerInfo& other) {
  const std::string target = stream_of(other);
  auto [writer, stream] = sinew::make_stream<std::string>();
  const auto taken = worker_.peer(other).within(kCallTimeout).async<&take_all>(std::move(stream));
  std::vector<std::string> ids;
  for (int i = 0; i < kBurst; ++i) {
    ids.push_back(begin(target));
    writer.write(ids.back());
  }
  writer.finish();
  const std::int64_t count = taken.wait();
  if (count != kBurst) tally_.wrong(absl::StrCat("a stream to ", target, " brought ", count));
  for (const std::string& id : ids) history().increment(id, target, Result::kOk);
  tally_.right();
}

void Counting::act(const sinew::WorkerInfo& other, std::uint64_t choice) {
  const sinew::Peer peer = worker_.peer(other).within(kCallTimeout);
  switch (choice) {
    case 0:
      return by_call(peer);
    case 1:
      return by_call(peer.retrying());
    case 2:
      return by_reference(other.name);
    default:
      return backward(peer);
  }
}

void Counting::by_call(const sinew::Peer& peer) {
  count(peer.info(), [&](const std::string& id) { return peer.call<&increment>(id); });
}

void Counting::by_reference(const std::string& name) {
  const auto counter = worker_.find<Counter>(name + "/counter", kFindTimeout);
  count(counter.owner(), [&](const std::string& id) {
    return counter.within(kCallTimeout).call<&Counter::increment>(id);
  });
}

void Counting::backward(const sinew::Peer& peer) {
  const sinew::autograd::Context context(worker_);
  const at::Tensor leaf = at::ones({3}).set_requires_grad(true);
  const at::Tensor scaled = peer.call<&scale>(leaf, 3.0);
  const auto begin = std::chrono::steady_clock::now();
  sinew::autograd::backward(context, {scaled.sum()});
  const at::Tensor gradient = sinew::autograd::gradient_of(context, leaf);
  if (gradient.defined() && gradient.equal(at::full({3}, 3.0))) return tally_.right();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  tally_.wrong(absl::StrCat("a gradient through ", counter_of(peer.info()), " is ",
                            gradient.defined() ? absl::StrCat(gradient[0].item<float>()) : "none",
                            " after ", taken.count(), " s, of a result that is ",
                            scaled.is_leaf() ? "a leaf" : scaled.grad_fn()->name()));
}

template <class Work>
void Counting::tell_errors(const sinew::WorkerInfo& other, const Work& work) {
  try {
    work();
  } catch (const sinew::RpcError& error) {
    tally_.failed(error, absl::StrCat("work with ", counter_of(other)));
  }
}

template <class Call>
void Counting::count(const sinew::WorkerInfo& owner, const Call& call) {
  const std::string id = begin(counter_of(owner));
  finish(counter_of(owner), id, [&] { call(id); });
}

std::string Counting::begin(const std::string& target) {
  std::string id = absl::StrCat(counter_of(worker_.info()), "-", ++numbers_);
  history().increment(id, target, Result::kUnknown);
  return id;
}

template <class Wait>
void Counting::finish(const std::string& target, const std::string& id, const Wait& wait) {
  try {
    wait();
    history().increment(id, target, Result::kOk);
    tally_.right();
  } catch (const sinew::RpcError& error) {
    if (error.execution() == sinew::Execution::kDidNotRun) {
      history().increment(id, target, Result::kDidNotRun);
    }
    throw;
  }
}

}  // namespace chaos
