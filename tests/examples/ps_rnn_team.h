#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/examples/ps_rnn/training.h"
#include "sinew/testing/cluster.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/temporary_folder.h"

namespace ps_rnn {

/// Trainers and servers in one process, which read a text of few words.
class PsRnnTeam : public sinew::testing::ClusterTest {
 protected:
  /// Of each epoch.
  static constexpr std::int64_t kSteps = 6;

  void SetUp() override;

  /// Trainers first, as the ranks of a job are.
  sinew::testing::Cluster& start_team(int trainers, int servers);
  /// One trainer and two servers, which worker3 and worker4 mirror.
  sinew::testing::Cluster& start_team_with_standbys();
  Training make_training() const;
  void serve_checkpoints(const std::filesystem::path& root, int workers);

  const sinew::testing::TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
  Options options_;
  std::vector<sinew::Peer> trainers_;
  std::vector<sinew::Peer> servers_;
  std::vector<sinew::Peer> standbys_;
};

/// Of the embedding, whose shards are put together, of the decoder and of the first trainer's LSTM.
std::vector<at::Tensor> values_of(const Training& training);

}  // namespace ps_rnn
