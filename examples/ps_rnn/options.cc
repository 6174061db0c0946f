#include "options.h"

#include <cmath>
#include <map>
#include <vector>

#include "sinew/examples/common/device_flag.h"

namespace ps_rnn {
namespace {

using examples::add_number;
using examples::add_whole;

/// Rates that suit a model of this size, by optimizer.
const std::map<std::string, double>& usual_rates() {
  static const std::map<std::string, double> rates = {
      {"sgd", 1.0}, {"momentum", 0.1}, {"adagrad", 0.05}, {"adam", 2e-3}, {"rmsprop", 1e-3}};
  return rates;
}

std::vector<std::string> names_of_optimizers() {
  std::vector<std::string> names;
  for (const auto& [name, rate] : usual_rates()) names.push_back(name);
  return names;
}

CLI::Validator preset_is_known() {
  return CLI::Validator(
      [](const std::string& text) -> std::string {
        return text == "tutorial" ? "" : "there is one preset, tutorial, and no '" + text + "'";
      },
      "");
}

/// The sizes of PyTorch's tutorial. Flags that are given as well win.
void apply_tutorial(Options& options) {
  options.batch = 5;
  options.bptt = 3;
  options.corpus.ntoken = 10;
  options.ninp = 2;
  options.nhid = 3;
  options.nlayers = 4;
  options.dropout = 0.5;
  options.optimizer = "sgd";
  options.lr = 0.05;
  options.lr_decay = 1;
  options.epochs = 10;
  options.max_steps = 100;
  options.scores_to_trainer = true;
}

void add_job_flags(CLI::App& app, Options& options) {
  add_whole(
      app, "--servers", options.servers, 1, 256,
      "Parameter servers, the last ranks: the embedding is spread over them. The others train, "
      "on a share of the text each");
  app.add_flag("--standby", options.standby,
               "As many processes more, the last ranks, each of which mirrors a server and takes "
               "its place when it is lost: nobody goes back to a checkpoint");
  app.add_option("--init-method", options.init_method,
                 "Where the processes meet, such as etcd://host:2379/prefix; env://: at rank 0, as "
                 "MASTER_ADDR and MASTER_PORT say")
      ->capture_default_str();
  examples::add_device_flag(app, options.device, "servers have the embedding and the decoder");
  add_whole(app, "--threads", options.threads, 1, 1024, "Threads of a process that compute");
  app.add_option(
      "--data", options.data,
      "The text, a file that each trainer can read; without it the bible, if Debian's bible-kjv "
      "is installed");
  add_whole(app, "--limit", options.corpus.limit, 0, 1'000'000'000,
            "Read so many words only; 0: all");
  app.add_option("--output", options.output, "Folder for loss_curve.csv and loss_curve.svg")
      ->capture_default_str();
  app.add_option("--checkpoint", options.checkpoint,
                 "Folder for a checkpoint after each epoch; every process writes there. With it, "
                 "servers may be killed and started again, and trainers but the first one may go");
  add_whole(app, "--checkpoint-rounds", options.checkpoint_rounds, 0, 1'000'000,
            "Rounds between two checkpoints that the others go back to when a process is lost, "
            "written while they train; 0: one when an epoch begins");
  add_whole(app, "--server-wait", options.server_wait, 1, 86'400,
            "Seconds to wait for a server that is lost to be started again");
  app.add_option("--history", options.history,
                 "File to which each trainer appends the steps that it asks the servers for, and "
                 "what became of them, one JSON object a line");
  app.add_flag("--resume", options.resume, "Go on after the last checkpoint in --checkpoint");
  app.add_flag("--json", options.json, "Print one JSON object on stdout, the rest on stderr");
}

void add_model_flags(CLI::App& app, Options& options) {
  add_whole(app, "--ntoken", options.corpus.ntoken, 2, 10'000'000,
            "Size of the vocabulary: the rarer words become <unk>");
  add_whole(app, "--ninp", options.ninp, 1, 65'536, "Width of an embedding");
  add_whole(app, "--nhid", options.nhid, 1, 65'536, "Width of a layer of the LSTM");
  add_whole(app, "--nlayers", options.nlayers, 1, 64, "Layers of the LSTM");
  add_number(app, "--dropout", options.dropout, 0, 0.95, "0 to 0.95",
             "Share of numbers that are zeroed between layers");
}

void add_training_flags(CLI::App& app, Options& options) {
  add_whole(app, "--batch", options.batch, 1, 65'536,
            "Pieces of the text that are read side by side");
  add_whole(app, "--bptt", options.bptt, 1, 65'536, "Words of each piece in a step");
  add_whole(app, "--epochs", options.epochs, 1, 1'000'000, "Passes over the text");
  app.add_option("--optimizer", options.optimizer, "How parameters are stepped")
      ->check(CLI::IsMember(names_of_optimizers()))
      ->capture_default_str();
  add_number(app, "--lr", options.lr, 0, 1000, "0 to 1000",
             "Learning rate; 0: what suits the optimizer");
  add_number(app, "--lr-decay", options.lr_decay, 0.001, 1, "0.001 to 1",
             "Factor of the learning rate after each epoch");
  add_whole(app, "--round", options.round, 1, 1'000'000,
            "Steps between two lines of the log; several trainers average their LSTMs then");
  add_whole(app, "--max-steps", options.max_steps, 0, 1'000'000'000,
            "End each epoch after so many steps; 0: don't");
  examples::add_seed(app, options.seed);
  app.add_flag("--scores-to-trainer", options.scores_to_trainer,
               "Compute the loss at the trainer, which all scores are sent to");
}

int refuse(const std::string& reason) {
  std::cerr << "ps_rnn: " << reason << "\nRun it with --help for all flags.\n";
  return examples::kUsageError;
}

}  // namespace

double Options::learning_rate(std::int64_t epoch) const {
  const double first = lr > 0 ? lr : usual_rates().at(optimizer);
  return first * std::pow(lr_decay, static_cast<double>(epoch - 1));
}

std::variant<Options, int> parse_options(int argc, char** argv) {
  Options options;
  // The preset sets what the other flags may then change, wherever it stands.
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--preset=tutorial" ||
        (word == "--preset" && i + 1 < argc && std::string(argv[i + 1]) == "tutorial")) {
      apply_tutorial(options);
    }
  }
  CLI::App app(
      "A language model whose embedding and decoder live on parameter servers, and whose LSTM "
      "lives with a trainer.\n\n  sinew-run --nproc 2 ps_rnn [FLAGS]",
      "ps_rnn");
  std::string preset;
  app.add_option("--preset", preset, "tutorial: the tiny sizes of PyTorch's tutorial")
      ->check(preset_is_known());
  add_job_flags(app, options);
  add_model_flags(app, options);
  add_training_flags(app, options);
  const examples::Parsed parsed = examples::parse(app, argc, argv);
  if (!parsed.go_on) return parsed.status;
  if (options.resume && options.checkpoint.empty()) {
    return refuse("--resume needs --checkpoint: the folder to go on from");
  }
  if (options.resume && !options.history.empty()) {
    return refuse("--history begins with the first step, so it does not go with --resume");
  }
  if (options.checkpoint_rounds > 0 && options.checkpoint.empty()) {
    return refuse("--checkpoint-rounds needs --checkpoint: the folder to write to");
  }
  if (options.standby && options.device != "cpu") {
    return refuse("--standby mirrors what is in host memory: leave out --device " + options.device);
  }
  if (options.servers > options.corpus.ntoken) {
    return refuse("--servers " + std::to_string(options.servers) + " is more than --ntoken " +
                  std::to_string(options.corpus.ntoken) + ": some would have no words");
  }
  return options;
}

}  // namespace ps_rnn
