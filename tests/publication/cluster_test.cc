// Publications and subscriptions of workers in one process.

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "sinew/optim/internal/weights_messages.h"
#include "sinew/optim/publication.h"
#include "sinew/sinew.h"
#include "sinew/tests/support/cluster.h"

namespace {

using sinew::ErrorCode;
using sinew::RpcError;
using sinew::internal::WeightsAsk;
using sinew::internal::WeightsContent;
using sinew::internal::WeightsOffer;
using sinew::internal::WeightsSnapshot;
using sinew::internal::WeightsSource;
using sinew::optim::Publication;
using sinew::optim::PublicationOptions;
using sinew::optim::StateDict;
using sinew::optim::Subscription;
using sinew::optim::SubscriptionOptions;
using sinew::optim::Weights;
using sinew::testing::error_of;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

/// All of them are `value`: what is not is a mixture.
StateDict filled(double value, std::int64_t size = 20'000) {
  return {{"a", at::full({size}, value)}, {"b", at::full({3, 5}, value)}};
}
double value_of(const Weights& weights) {
  const double value = weights.tensors.at("b")[0][0].item<double>();
  for (const auto& [name, tensor] : weights.tensors) {
    EXPECT_TRUE(tensor.equal(at::full(tensor.sizes(), value, tensor.options()))) << name;
  }
  return value;
}
SubscriptionOptions alone() {
  SubscriptionOptions options;
  options.shares_memory = false;
  return options;
}

class Publications : public sinew::testing::ClusterTest {
 protected:
  void start_workers(int count) { start(count, sinew::MethodTable()); }
};
SINEW_INSTANTIATE_CLUSTER_TEST(Publications);

TEST_P(Publications, ReadersHaveTheNewestVersion) {
  start_workers(2);
  const Publication writer(worker(0), "weights");
  const Subscription reader(worker(1), "worker0/weights");
  EXPECT_EQ(reader.latest(), nullptr);
  EXPECT_EQ(writer.publish(filled(1)), 1U);
  const auto first = reader.wait_for(1);
  EXPECT_EQ(first->version, 1U);
  EXPECT_EQ(value_of(*first), 1);
  EXPECT_LT(first->age(), 60s);
  EXPECT_LT(std::chrono::abs(std::chrono::system_clock::now() - first->published), 60s);
  writer.publish(filled(2));
  EXPECT_EQ(value_of(*reader.wait_for(2)), 2);
  EXPECT_EQ(value_of(*first), 1) << "it stays what it is";
  // One that comes late, and the writer's own worker.
  const Subscription late(worker(1), "worker0/weights");
  EXPECT_EQ(value_of(*late.wait_for(1)), 2);
  const Subscription own(worker(0), "worker0/weights");
  EXPECT_EQ(value_of(*own.wait_for(1)), 2);
  EXPECT_EVENTUALLY(writer.status().readers.size(), 3U);
  EXPECT_EQ(writer.status().version, 2U);
  EXPECT_EQ(reader.status().mapped, 2U);
  EXPECT_EQ(reader.status().received_bytes, 0U);
}

TEST_P(Publications, WithoutSharedMemoryBytesTravel) {
  start_workers(3);
  PublicationOptions options;
  options.fan_out = 1;
  const Publication writer(worker(0), "weights", options);
  const Subscription first(worker(1), "worker0/weights", alone());
  const Subscription second(worker(2), "worker0/weights", alone());
  constexpr std::int64_t kSize = 5'000'000;
  writer.publish(filled(1, kSize));
  EXPECT_EQ(value_of(*first.wait_for(1)), 1);
  EXPECT_EQ(value_of(*second.wait_for(1)), 1);
  EXPECT_EQ(first.status().whole, 1U);
  EXPECT_GT(second.status().received_bytes, 4U * kSize);
  // One element of many.
  StateDict next = filled(1, kSize);
  next.at("a")[7] = 1.5;
  writer.publish(next);
  for (const Subscription& each : {first, second}) {
    const std::uint64_t before = each.status().received_bytes;
    const auto weights = each.wait_for(2);
    EXPECT_EQ(weights->tensors.at("a")[7].item<double>(), 1.5);
    EXPECT_EQ(each.status().changed, 1U);
    EXPECT_LT(each.status().received_bytes, before + 100);
  }
  // Another shape comes as a whole; so does what is all new.
  writer.publish({{"c", at::ones({3})}});
  EXPECT_EQ(first.wait_for(3)->tensors.count("c"), 1U);
  EXPECT_EQ(second.wait_for(3)->tensors.size(), 1U);
}

TEST_P(Publications, ReadersTakeThemFromEachOther) {
  start_workers(6);
  PublicationOptions options;
  options.fan_out = 1;
  const Publication writer(worker(0), "weights", options);
  std::vector<Subscription> readers;
  for (int rank = 1; rank < 6; ++rank) {
    readers.emplace_back(worker(rank), "worker0/weights", alone());
  }
  // All of them wait when the first one comes.
  EXPECT_EVENTUALLY(writer.status().readers.size(), 5U);
  for (int version = 1; version <= 3; ++version) {
    StateDict state = filled(1, 1'000'000);
    state.at("a")[version] = 7.0;
    const std::uint64_t number = writer.publish(state);
    std::size_t by_others = 0;
    for (const Subscription& each : readers) {
      EXPECT_TRUE(each.wait_for(number)->tensors.at("a").equal(state.at("a")));
      by_others += each.status().source == "worker0" ? 0 : 1;
    }
    EXPECT_GT(by_others, 0U) << version;
  }
  for (const Subscription& each : readers) {
    EXPECT_EQ(each.status().whole, 1U);
    EXPECT_EQ(each.status().changed, 2U) << "also what comes from another reader";
  }
}

TEST_P(Publications, AWriterThatComesBackGoesOnAboveItsLastVersion) {
  start_workers(3);
  auto writer = std::make_unique<Publication>(worker(0), "weights");
  const Subscription reader(worker(1), "worker0/weights");
  for (int version = 1; version <= 5; ++version) writer->publish(filled(version));
  EXPECT_EQ(value_of(*reader.wait_for(5)), 5);
  writer.reset();
  EXPECT_EQ(value_of(*reader.latest()), 5) << "it is kept meanwhile";
  const Publication next(worker(0), "weights");
  next.publish(filled(50));
  const auto weights = reader.wait_for(6, 30s);
  EXPECT_EQ(weights->version, 6U);
  EXPECT_EQ(value_of(*weights), 50);
  EXPECT_EQ(next.status().version, 6U);
  const Subscription late(worker(2), "worker0/weights");
  EXPECT_EQ(late.wait_for(1)->version, 6U);
  EXPECT_EQ(next.publish(filled(51)), 7U);
}

TEST_P(Publications, ASlowReaderLeavesVersionsOut) {
  start_workers(2);
  const Publication writer(worker(0), "weights");
  std::vector<std::uint64_t> seen;
  sinew::testing::Gate gate;
  SubscriptionOptions options;
  std::atomic<std::uint64_t> last{0};
  options.on_version = [&](const std::shared_ptr<const Weights>& weights) {
    EXPECT_EQ(value_of(*weights), static_cast<double>(weights->version));
    seen.push_back(weights->version);
    gate.pass();
    last = weights->version;
  };
  Subscription reader(worker(1), "worker0/weights", options);
  for (int version = 1; version <= 100; ++version) {
    EXPECT_EQ(writer.publish(filled(version)), static_cast<std::uint64_t>(version));
  }
  // It is in its function with one of them while all the others come.
  EXPECT_TRUE(gate.wait_for_arrivals(1));
  EXPECT_EQ(reader.wait_for(100, 60s)->version, 100U);
  gate.open();
  EXPECT_EVENTUALLY(last.load(), 100U);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_LE(seen.size(), 2U);
  reader = {};
}

TEST_P(Publications, MistakesAreNamed) {
  start_workers(2);
  const Publication writer(worker(0), "weights");
  EXPECT_EQ(error_of([&] { writer.publish({}); }).message(), "weights: a version has no tensors");
  EXPECT_EQ(error_of([&] {
              writer.publish({{"a", at::Tensor()}});
            }).message(),
            "weights: tensor 'a' is undefined");
  EXPECT_EQ(error_of([&] { Publication(worker(0), "weights"); }).code(), ErrorCode::kAlreadyExists);
  PublicationOptions none;
  none.kept = 0;
  EXPECT_THAT(error_of([&] { Publication(worker(0), "other", none); }).message(),
              HasSubstr("at least 1"));
  EXPECT_EQ(error_of([&] { static_cast<void>(Subscription().latest()); }).message(),
            "this Subscription is empty");
  const Subscription reader(worker(1), "worker0/weights");
  EXPECT_THAT(error_of([&] { static_cast<void>(reader.wait_for(1, 50ms)); }).message(),
              HasSubstr("version 1 of 'worker0/weights' has not come: the newest here is 0"));
  // Another type has the name.
  worker(0).publish("number", std::make_shared<int>(7));
  const Subscription wrong(worker(1), "worker0/number");
  const RpcError error = error_of([&] { static_cast<void>(wrong.wait_for(1, 30s)); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr("was sought as a"));
  worker(0).unpublish("number");
}

// ---- A writer that says what is not so.

class Liar final : public sinew::internal::WeightsWriter {
 public:
  sinew::Future<std::optional<WeightsOffer>> ask(const WeightsAsk& ask) override {
    ++asked;
    if (ask.ask.has.number >= 1000) {
      return sinew::make_ready_future(std::optional<WeightsOffer>());
    }
    return sinew::make_ready_future(std::optional<WeightsOffer>(offer));
  }
  void leave(std::uint64_t) override {}
  std::atomic<int> asked{0};
  WeightsOffer offer;
};

TEST_P(Publications, WhatAStrangerSaysIsNotBelieved) {
  start_workers(2);
  const auto liar = std::make_shared<Liar>();
  auto made = sinew::internal::copy_weights(filled(3), false);
  ASSERT_TRUE(made.ok());
  const WeightsContent content = *sinew::internal::seal_weights(std::move(*made));
  liar->offer.version = {77, 5, content.digest};
  liar->offer.source_id = sinew::internal::PublicationTable::kWriter;
  liar->offer.tensors = content.layout.tensors();
  liar->offer.source = WeightsSource{
      sinew::share_rref(worker(0),
                        std::make_shared<WeightsSnapshot>(content, std::vector<WeightsContent>())),
      content.bytes->place()};
  const WeightsOffer honest = liar->offer;
  std::vector<std::pair<std::string, WeightsOffer>> lies;
  const auto lie = [&](const std::string& name) -> WeightsOffer& {
    return lies.emplace_back(name, honest).second;
  };
  lie("another checksum").version.digest = std::string(64, '0');
  lie("no checksum").version.digest = "";
  lie("no number").version.number = 0;
  lie("no tensors").tensors.clear();
  lie("a larger tensor").tensors[0].sizes = {std::int64_t{1} << 50};
  lie("a tensor that is a little larger").tensors[0].sizes = {20'001};
  lie("a smaller tensor").tensors[0].sizes = {19'000};
  lie("another name").tensors[0].name = "0";
  lie("names twice").tensors[1].name = "a";
  lie("no source").source.reset();
  lie("memory elsewhere").is_shared = true;
  lies.back().second.source->place.name = "passwd";
  for (const auto& [name, offer] : lies) {
    liar->offer = offer;
    liar->asked = 0;
    worker(0).publish("lies", std::static_pointer_cast<sinew::internal::WeightsWriter>(liar));
    {
      const Subscription reader(worker(1), "worker0/lies", alone());
      EXPECT_EVENTUALLY(liar->asked.load() > 1, true) << name;
      EXPECT_EQ(reader.latest(), nullptr) << name;
    }
    worker(0).unpublish("lies");
  }
  // What is true is taken over.
  liar->offer = honest;
  liar->offer.version.number = 1000;
  worker(0).publish("lies", std::static_pointer_cast<sinew::internal::WeightsWriter>(liar));
  {
    const Subscription reader(worker(1), "worker0/lies", alone());
    EXPECT_EQ(value_of(*reader.wait_for(1000)), 3);
  }
  worker(0).unpublish("lies");
  liar->offer.source.reset();
}

TEST_P(Publications, AWorkerThatComesBackGoesOn) {
  start_workers(3);
  const Publication writer(worker(0), "weights");
  const Subscription reader(worker(1), "worker0/weights");
  writer.publish(filled(1));
  EXPECT_EQ(value_of(*reader.wait_for(1)), 1);
  // As though its worker were another one.
  reader.move_to(worker(2));
  writer.publish(filled(2));
  EXPECT_EQ(value_of(*reader.wait_for(2)), 2);
}

}  // namespace
