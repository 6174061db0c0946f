#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <variant>

#include "corpus.h"

namespace ps_rnn {

/// What the command line asks for. All processes of a job get the same one.
struct Options {
  /// Processes of each kind. Ranks 0 to trainers - 1 are trainers, the next ones servers. How many
  /// trainers there are the command line does not say: all that are no servers.
  int trainers = 1;
  int servers = 1;
  /// With as many processes more, the last ranks, each of which mirrors a server.
  bool standby = false;

  /// Processes that are no trainers.
  int served() const { return standby ? 2 * servers : servers; }

  /// Where they meet, WorkerOptions::init_method: "env://" is where the launcher says.
  std::string init_method = "env://";

  /// The text; empty: bible_text().
  std::filesystem::path data;
  CorpusOptions corpus;

  // The model; `ntoken` is in `corpus`.
  std::int64_t ninp = 200;
  std::int64_t nhid = 200;
  std::int64_t nlayers = 2;
  double dropout = 0.2;

  // The training.
  /// Pieces of the text that are read side by side, and words of each in a step.
  std::int64_t batch = 20;
  std::int64_t bptt = 35;
  std::int64_t epochs = 6;
  std::string optimizer = "adam";
  /// 0: what suits the optimizer.
  double lr = 0;
  /// The learning rate is multiplied with that after each epoch.
  double lr_decay = 0.8;
  /// Steps of a round: a line of the log, and an average of the trainers' LSTMs, each.
  std::int64_t round = 50;
  /// Ends an epoch after so many steps; 0: when the text ends.
  std::int64_t max_steps = 0;
  std::int64_t seed = 1;
  /// Send all scores to the trainer, which computes the loss, as the tutorial does.
  bool scores_to_trainer = false;

  /// Where the loss curve goes; empty: nowhere.
  std::filesystem::path output = "ps_rnn-output";
  /// Folder of checkpoints, after each epoch; empty: none. With one, processes that are lost end
  /// the job no more, but the first trainer.
  std::filesystem::path checkpoint;
  /// Rounds between two checkpoints to which the others go back when one is lost; 0: an epoch.
  std::int64_t checkpoint_rounds = 0;
  /// How long the others wait for a server that is lost, in seconds.
  std::int64_t server_wait = 300;
  /// Go on from the last checkpoint.
  bool resume = false;

  /// Where trainers write which steps they have asked for, and what became of them
  /// (examples/common/history_file.h); empty: nowhere.
  std::filesystem::path history;

  /// Where servers have the embedding and the decoder: "cpu" or "cuda".
  std::string device = "cpu";
  /// Threads of a process that compute.
  int threads = 1;
  /// Print one JSON object on stdout, and everything else on stderr.
  bool json = false;

  double learning_rate(std::int64_t epoch) const;
};

/// Reads the command line. A mistake (or --help) is answered on the terminal; the result is then
/// the exit status of the program: 2 (or 0).
std::variant<Options, int> parse_options(int argc, char** argv);

}  // namespace ps_rnn
