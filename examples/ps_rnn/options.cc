#include "options.h"

#include <cmath>
#include <map>
#include <vector>

#include "sinew/examples/common/flags.h"

namespace ps_rnn {
namespace {

using examples::between;
using examples::whole;

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
  app.add_option("--trainers", options.trainers,
                 "Processes that train, on a share of the text each")
      ->check(whole(1, 256))
      ->capture_default_str();
  app.add_option("--servers", options.servers,
                 "Parameter servers: the embedding is spread over them")
      ->check(whole(1, 256))
      ->capture_default_str();
  app.add_option("--threads", options.threads, "Threads of a process that compute")
      ->check(whole(1, 1024))
      ->capture_default_str();
  app.add_option("--data", options.data, "The text, a file that each trainer can read");
  app.add_option("--limit", options.corpus.limit, "Read so many words only; 0: all")
      ->check(whole(0, 1'000'000'000))
      ->capture_default_str();
  app.add_option("--output", options.output, "Folder for loss_curve.csv and loss_curve.svg")
      ->capture_default_str();
  app.add_option("--checkpoint", options.checkpoint,
                 "Folder for a checkpoint after each epoch; every process writes there");
  app.add_flag("--resume", options.resume, "Go on after the last checkpoint in --checkpoint");
  app.add_flag("--json", options.json, "Print one JSON object on stdout, the rest on stderr");
}

void add_model_flags(CLI::App& app, Options& options) {
  app.add_option("--ntoken", options.corpus.ntoken,
                 "Size of the vocabulary: the rarer words become <unk>")
      ->check(whole(2, 10'000'000))
      ->capture_default_str();
  app.add_option("--ninp", options.ninp, "Width of an embedding")
      ->check(whole(1, 65'536))
      ->capture_default_str();
  app.add_option("--nhid", options.nhid, "Width of a layer of the LSTM")
      ->check(whole(1, 65'536))
      ->capture_default_str();
  app.add_option("--nlayers", options.nlayers, "Layers of the LSTM")
      ->check(whole(1, 64))
      ->capture_default_str();
  app.add_option("--dropout", options.dropout, "Share of numbers that are zeroed between layers")
      ->check(between<double>(0, 0.95, "a number from 0 to 0.95"))
      ->capture_default_str();
}

void add_training_flags(CLI::App& app, Options& options) {
  app.add_option("--batch", options.batch, "Pieces of the text that are read side by side")
      ->check(whole(1, 65'536))
      ->capture_default_str();
  app.add_option("--bptt", options.bptt, "Words of each piece in a step")
      ->check(whole(1, 65'536))
      ->capture_default_str();
  app.add_option("--epochs", options.epochs, "Passes over the text")
      ->check(whole(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--optimizer", options.optimizer, "How parameters are stepped")
      ->check(CLI::IsMember(names_of_optimizers()))
      ->capture_default_str();
  app.add_option("--lr", options.lr, "Learning rate; 0: what suits the optimizer")
      ->check(between<double>(0, 1000, "a number from 0 to 1000"))
      ->capture_default_str();
  app.add_option("--lr-decay", options.lr_decay, "Factor of the learning rate after each epoch")
      ->check(between<double>(0.001, 1, "a number from 0.001 to 1"))
      ->capture_default_str();
  app.add_option("--round", options.round,
                 "Steps between two lines of the log; several trainers average their LSTMs then")
      ->check(whole(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--max-steps", options.max_steps, "End each epoch after so many steps; 0: don't")
      ->check(whole(0, 1'000'000'000))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Seed of all random numbers")
      ->check(whole(0, 1'000'000'000))
      ->capture_default_str();
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
      "lives "
      "with a trainer.\nRANK says which of the job's processes this one is (see "
      "examples/README.md).",
      "ps_rnn");
  std::string preset;
  app.add_option("--preset", preset, "tutorial: the tiny sizes of PyTorch's tutorial")
      ->check(preset_is_known());
  add_job_flags(app, options);
  add_model_flags(app, options);
  add_training_flags(app, options);
  const examples::Parsed parsed = examples::parse(app, argc, argv);
  if (!parsed.go_on) return parsed.status;
  if (options.data.empty()) return refuse("--data is missing: the file with the text");
  if (options.resume && options.checkpoint.empty()) {
    return refuse("--resume needs --checkpoint: the folder to go on from");
  }
  if (options.servers > options.corpus.ntoken) {
    return refuse("--servers " + std::to_string(options.servers) + " is more than --ntoken " +
                  std::to_string(options.corpus.ntoken) + ": some would have no words");
  }
  return options;
}

}  // namespace ps_rnn
