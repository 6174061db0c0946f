#include "model.h"

#include <cmath>
#include <utility>

#include "ATen/ATen.h"
#include "ATen/CPUGeneratorImpl.h"
#include "sinew/examples/common/device.h"
#include "sinew/examples/common/split_linear.h"

namespace ps_rnn {
namespace {

// Whatever has random numbers of its own in a model with one seed.
enum Stream : std::int64_t { kTable, kScores, kLstm, kTableDropout, kScoresDropout };

at::Generator generator(std::int64_t seed, std::int64_t stream) {
  return at::detail::createCPUGenerator(static_cast<std::uint64_t>(seed) * 1'000'003 +
                                        static_cast<std::uint64_t>(stream));
}

// Rounds have streams of their own, far from the others.
std::int64_t dropout_stream(Stream stream, std::int64_t epoch, std::int64_t done) {
  return 1000 + 10 * (1'000'003 * epoch + done) + stream;
}

void fill_uniform(const std::vector<at::Tensor>& parameters, double bound, std::int64_t seed,
                  Stream stream) {
  const at::NoGradGuard no_grad;
  const at::Generator random = generator(seed, stream);
  for (const at::Tensor& parameter : parameters) parameter.uniform_(-bound, bound, random);
}

std::int64_t rows_of_shard(std::int64_t ntoken, std::int64_t shard, std::int64_t shards) {
  return (ntoken - shard + shards - 1) / shards;
}

}  // namespace

Dropout::Dropout(double share, std::int64_t seed) : share_(share), generator_(generator(seed, 0)) {}

void Dropout::reseed(std::int64_t seed) {
  generator_.set_current_seed(static_cast<std::uint64_t>(seed));
}

at::Tensor Dropout::apply(const at::Tensor& input, bool training) {
  if (!training || share_ == 0) return input;
  const double kept = 1 - share_;
  const at::Tensor drawn = at::empty_like(input, input.options().device(at::kCPU));
  return input * drawn.bernoulli_(kept, generator_).div_(kept).to(input.device());
}

EmbeddingTable::EmbeddingTable(const ModelSettings& settings, std::int64_t shard,
                               std::int64_t shards)
    : seed_(settings.seed), dropout_(settings.dropout, settings.seed) {
  const std::int64_t rows = rows_of_shard(settings.ntoken, shard, shards);
  table_ = register_module(
      "table",
      torch::nn::Embedding(
          torch::nn::EmbeddingOptions(rows, settings.ninp).sparse(settings.sparse_embedding)));
  const at::Tensor whole = at::empty({settings.ntoken, settings.ninp});
  fill_uniform({whole}, 0.1, seed_, kTable);
  const at::NoGradGuard no_grad;
  table_->weight.copy_(whole.slice(0, shard, settings.ntoken, shards));
  to(examples::device_of(settings.device));
}

at::Tensor EmbeddingTable::forward(const at::Tensor& rows) {
  return dropout_.apply(table_->forward(rows), is_training());
}

void EmbeddingTable::begin_round(std::int64_t epoch, std::int64_t done) {
  dropout_.reseed(seed_ * 1'000'003 + dropout_stream(kTableDropout, epoch, done));
}

Decoder::Decoder(const ModelSettings& settings)
    : seed_(settings.seed), dropout_(settings.dropout, settings.seed) {
  scores_ = register_module("scores", torch::nn::Linear(settings.nhid, settings.ntoken));
  fill_uniform({scores_->weight}, 0.1, seed_, kScores);
  const at::NoGradGuard no_grad;
  scores_->bias.zero_();
  to(examples::device_of(settings.device));
}

at::Tensor Decoder::forward(const at::Tensor& output) {
  // The trainer goes on as soon as it has the gradient of `output`.
  return examples::split_linear(dropout_.apply(output, is_training()), scores_->weight,
                                scores_->bias);
}

at::Tensor Decoder::loss(const at::Tensor& output, const at::Tensor& targets) {
  const at::Device device = scores_->weight.device();
  // Without a device map for the way back, what came from host memory goes back to it.
  return cross_entropy(forward(output.to(device)), targets.to(device)).to(output.device());
}

void Decoder::begin_round(std::int64_t epoch, std::int64_t done) {
  dropout_.reseed(seed_ * 1'000'003 + dropout_stream(kScoresDropout, epoch, done));
}

torch::nn::LSTM make_lstm(const ModelSettings& settings) {
  auto options = torch::nn::LSTMOptions(settings.ninp, settings.nhid).num_layers(settings.nlayers);
  // Between layers: one alone has none, and LibTorch warns of it.
  if (settings.nlayers > 1) options.dropout(settings.dropout);
  torch::nn::LSTM lstm(options);
  fill_uniform(lstm->parameters(), 1 / std::sqrt(static_cast<double>(settings.nhid)), settings.seed,
               kLstm);
  return lstm;
}

Hidden zero_hidden(const ModelSettings& settings, std::int64_t batch) {
  return {at::zeros({settings.nlayers, batch, settings.nhid}),
          at::zeros({settings.nlayers, batch, settings.nhid})};
}

Hidden detached(const Hidden& hidden) {
  return {std::get<0>(hidden).detach(), std::get<1>(hidden).detach()};
}

at::Tensor cross_entropy(const at::Tensor& scores, const at::Tensor& targets) {
  return at::cross_entropy_loss(scores.flatten(0, -2), targets.flatten());
}

ServerModel ServerModel::make(const std::vector<sinew::Peer>& servers,
                              const ModelSettings& settings) {
  ServerModel model;
  model.embedding.resize(servers.size());
  for (std::size_t shard = 0; shard < servers.size(); ++shard) {
    model.make_at(servers[shard], static_cast<std::int64_t>(shard), settings);
  }
  return model;
}

void ServerModel::make_at(const sinew::Peer& server, std::int64_t shard,
                          const ModelSettings& settings) {
  const auto shards = static_cast<std::int64_t>(embedding.size());
  // Made by remote(), since only the server knows which of its GPUs is its own.
  embedding[static_cast<std::size_t>(shard)] =
      sinew::RemoteModule<EmbeddingTable>(server.remote<EmbeddingTable>(settings, shard, shards));
  if (shard == 0) decoder = sinew::RemoteModule<Decoder>(server.remote<Decoder>(settings));
}

namespace {

void append(std::vector<sinew::RRef<at::Tensor>>& all,
            const std::vector<sinew::RRef<at::Tensor>>& some) {
  all.insert(all.end(), some.begin(), some.end());
}

}  // namespace

std::vector<sinew::RRef<at::Tensor>> ServerModel::parameters() const {
  std::vector<sinew::RRef<at::Tensor>> all;
  for (const auto& shard : embedding) append(all, shard.remote_parameters());
  append(all, decoder.remote_parameters());
  return all;
}

std::vector<sinew::RRef<at::Tensor>> ServerModel::parameters_at(std::int64_t shard) const {
  std::vector<sinew::RRef<at::Tensor>> all =
      embedding[static_cast<std::size_t>(shard)].remote_parameters();
  if (shard == 0) append(all, decoder.remote_parameters());
  return all;
}

void ServerModel::replace(std::int64_t shard, const ServerModel& by) {
  embedding[static_cast<std::size_t>(shard)] = by.embedding[static_cast<std::size_t>(shard)];
  if (shard == 0) decoder = by.decoder;
}

void ServerModel::begin_round(std::int64_t epoch, std::int64_t done) const {
  for (const auto& shard : embedding) {
    shard.module_rref().call<&EmbeddingTable::begin_round>(epoch, done);
  }
  decoder.module_rref().call<&Decoder::begin_round>(epoch, done);
}

void ServerModel::train(bool on) const {
  for (const auto& shard : embedding) shard.train(on);
  decoder.train(on);
}

at::Tensor ServerModel::embed(const at::Tensor& words) const {
  if (embedding.size() == 1) return embedding.front().forward(words);
  const auto shards = static_cast<std::int64_t>(embedding.size());
  const at::Tensor flat = words.flatten();
  const at::Tensor owner = flat.remainder(shards);
  const at::Tensor row = flat.div(shards, "floor");
  std::vector<sinew::Future<at::Tensor>> calls;
  std::vector<at::Tensor> places;  // in `flat`, of the rows that each call returns
  for (std::int64_t shard = 0; shard < shards; ++shard) {
    at::Tensor here = owner.eq(shard).nonzero().squeeze(1);
    if (here.numel() == 0) continue;
    calls.push_back(
        embedding[static_cast<std::size_t>(shard)].forward_async(row.index_select(0, here)));
    places.push_back(std::move(here));
  }
  std::vector<at::Tensor> rows;
  rows.reserve(calls.size());
  for (const auto& call : calls) rows.push_back(call.wait());
  const at::Tensor in_order = at::cat(rows).index_select(0, at::cat(places).argsort());
  std::vector<std::int64_t> shape = words.sizes().vec();
  shape.push_back(in_order.size(1));
  return in_order.view(shape);
}

void add_server_methods(sinew::MethodTable& methods) { methods.serve<EmbeddingTable, Decoder>(); }

}  // namespace ps_rnn
