#include "sinew/tests/examples/ps_rnn_team.h"

#include <memory>

#include "ATen/ATen.h"
#include "sinew/examples/common/files.h"
#include "sinew/examples/ps_rnn/corpus.h"

namespace ps_rnn {
namespace {

/// A text of few words with a grammar: each word says which ones may follow.
std::string some_text() {
  const std::vector<std::string> words = {"the", "king", "sees", "a", "river", "and", "sleeps"};
  std::string text;
  std::uint32_t state = 7;
  std::size_t word = 0;
  for (int line = 0; line < 600; ++line) {
    for (int i = 0; i < 8; ++i) {
      state = state * 1664525 + 1013904223;
      word = (word * 3 + 1 + (state >> 24) % 3) % words.size();
      text += words[word] + " ";
    }
    text += "\n";
  }
  return text;
}

}  // namespace

void PsRnnTeam::SetUp() {
  examples::write_file(folder_ / "text", some_text());
  options_.data = folder_ / "text";
  options_.corpus.ntoken = 7;  // one of the words is rare enough to be <unk>
  options_.ninp = 6;
  options_.nhid = 5;
  options_.batch = 4;
  options_.bptt = 7;
  options_.dropout = 0;
  options_.optimizer = "sgd";
  options_.max_steps = kSteps;
  options_.epochs = 2;
  options_.round = 4;
  options_.output.clear();
}

sinew::testing::Cluster& PsRnnTeam::start_team(int trainers, int servers) {
  options_.trainers = trainers;
  options_.servers = servers;
  sinew::MethodTable methods;
  add_trainer_methods(methods);
  add_server_methods(methods);
  sinew::testing::Cluster& cluster = start(trainers + servers, methods);
  trainers_.clear();
  servers_.clear();
  standbys_.clear();
  for (int rank = 0; rank < trainers + servers; ++rank) {
    (rank < trainers ? trainers_ : servers_).push_back(worker(0).peer(rank));
  }
  return cluster;
}

sinew::testing::Cluster& PsRnnTeam::start_team_with_standbys() {
  sinew::testing::Cluster& cluster = start_team(1, 4);
  for (int rank = 3; rank < 5; ++rank) {
    worker(rank).publish(kReady, std::make_shared<std::string>());
  }
  standbys_.assign(servers_.begin() + 2, servers_.end());
  servers_.resize(2);
  return cluster;
}

Training PsRnnTeam::make_training() const {
  const Corpus corpus = load_corpus(options_.data, options_.corpus);
  return {worker(0), {trainers_, servers_, standbys_}, options_, corpus.tokens()};
}

void PsRnnTeam::serve_checkpoints(const std::filesystem::path& root, int workers) {
  std::filesystem::create_directories(root);
  for (int rank = 0; rank < workers; ++rank) {
    sinew::optim::serve_checkpoints(worker(rank), root.string());
  }
  options_.checkpoint = root;
}

std::vector<at::Tensor> values_of(const Training& training) {
  std::vector<at::Tensor> values;
  for (const auto& parameter : training.servers().parameters()) {
    values.push_back(parameter.to_here().detach().clone());
  }
  const std::size_t shards = training.servers().embedding.size();
  std::int64_t rows = 0;
  for (std::size_t i = 0; i < shards; ++i) rows += values[i].size(0);
  const at::Tensor table = at::empty({rows, values[0].size(1)});
  for (std::size_t i = 0; i < shards; ++i) {
    table.slice(0, static_cast<std::int64_t>(i), rows, static_cast<std::int64_t>(shards))
        .copy_(values[i]);
  }
  values.erase(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(shards));
  values.insert(values.begin(), table);
  for (const at::Tensor& one : training.trainers().front().call<&Trainer::parameters>()) {
    values.push_back(one.clone());
  }
  return values;
}

}  // namespace ps_rnn
