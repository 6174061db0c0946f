#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "ATen/core/Generator.h"
#include "ATen/core/Tensor.h"
#include "sinew/sinew.h"
#include "torch/nn/modules/embedding.h"
#include "torch/nn/modules/linear.h"
#include "torch/nn/modules/rnn.h"

namespace ps_rnn {

struct ModelSettings {
  /// Words that are told apart.
  std::int64_t ntoken = 10'000;
  /// Width of an embedding, and of the LSTM's layers.
  std::int64_t ninp = 200;
  std::int64_t nhid = 200;
  std::int64_t nlayers = 2;
  /// Share of the numbers that are zeroed between layers while training.
  double dropout = 0.2;
  std::int64_t seed = 1;
  /// Gradients of the embedding hold only the rows that were looked up.
  bool sparse_embedding = false;
  /// Where a server has its part of the model; see examples::device_of().
  std::string device = "cpu";
};

/// Dropout with a generator of its own: what others draw in the same process changes nothing. The
/// numbers are the same on every device.
class Dropout {
 public:
  Dropout(double share, std::int64_t seed);
  void reseed(std::int64_t seed);
  /// Thread-safe.
  at::Tensor apply(const at::Tensor& input, bool training);

 private:
  const double share_;
  at::Generator generator_;
};

/// The rows of the embedding that one server holds: of `shards` servers, number `shard` has the
/// words whose token is congruent to it. Frequent words have small tokens, so that this is fair. On
/// one seed all shards together are the same table, whatever their number.
class EmbeddingTable : public torch::nn::Module {
 public:
  EmbeddingTable(const ModelSettings& settings, std::int64_t shard, std::int64_t shards);
  /// {n} rows of this shard to {n, ninp}; of any shape, in fact. Thread-safe.
  at::Tensor forward(const at::Tensor& rows);
  /// Before the round that begins after `done` steps of an epoch: its dropout is the same whether
  /// or not what came before ran in this process.
  void begin_round(std::int64_t epoch, std::int64_t done);

 private:
  const std::int64_t seed_;
  Dropout dropout_;
  torch::nn::Embedding table_{nullptr};
};

/// Turns the LSTM's output into a score for each word.
class Decoder : public torch::nn::Module {
 public:
  explicit Decoder(const ModelSettings& settings);
  /// {.., nhid} to {.., ntoken}. Thread-safe.
  at::Tensor forward(const at::Tensor& output);
  /// Mean cross entropy of `targets` under forward(output), without sending all the scores. Where
  /// `output` is.
  at::Tensor loss(const at::Tensor& output, const at::Tensor& targets);
  void begin_round(std::int64_t epoch, std::int64_t done);

 private:
  const std::int64_t seed_;
  Dropout dropout_;
  torch::nn::Linear scores_{nullptr};
};

/// The state of an LSTM, and the LSTM that a trainer holds.
using Hidden = std::tuple<at::Tensor, at::Tensor>;
torch::nn::LSTM make_lstm(const ModelSettings& settings);
Hidden zero_hidden(const ModelSettings& settings, std::int64_t batch);
/// The same numbers, without their history.
Hidden detached(const Hidden& hidden);

/// Mean cross entropy of {steps, batch, ntoken} scores.
at::Tensor cross_entropy(const at::Tensor& scores, const at::Tensor& targets);

/// The part of the model that lies on the servers, as trainers see it.
struct ServerModel {
  std::vector<sinew::RemoteModule<EmbeddingTable>> embedding;
  sinew::RemoteModule<Decoder> decoder;

  /// Makes both, the table in as many shards as there are servers, the decoder at the first one.
  static ServerModel make(const std::vector<sinew::Peer>& servers, const ModelSettings& settings);
  /// Makes what server number `shard` has, there.
  void make_at(const sinew::Peer& server, std::int64_t shard, const ModelSettings& settings);
  std::vector<sinew::RRef<at::Tensor>> parameters() const;
  /// Those that server number `shard` has, in the same order.
  std::vector<sinew::RRef<at::Tensor>> parameters_at(std::int64_t shard) const;
  /// Takes what that server has from another model.
  void replace(std::int64_t shard, const ServerModel& by);
  void begin_round(std::int64_t epoch, std::int64_t done) const;
  void train(bool on) const;

  /// {steps, batch} words to {steps, batch, ninp}: one call to each server that has any of them.
  at::Tensor embed(const at::Tensor& words) const;
};

/// The name by which each process says that it can be called: find "server0/ready", also after
/// server0 was killed and started again. A std::string, the root of its checkpoints.
constexpr const char* kReady = "ready";

/// What servers must serve.
void add_server_methods(sinew::MethodTable& methods);

}  // namespace ps_rnn

SINEW_STRUCT(ps_rnn::ModelSettings, ntoken, ninp, nhid, nlayers, dropout, seed, sparse_embedding,
             device);
SINEW_STRUCT(ps_rnn::ServerModel, embedding, decoder);
SINEW_MODULE(ps_rnn::EmbeddingTable, (ps_rnn::ModelSettings, std::int64_t, std::int64_t),
             begin_round);
SINEW_MODULE(ps_rnn::Decoder, (ps_rnn::ModelSettings), loss, begin_round);
