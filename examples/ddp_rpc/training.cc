#include "training.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "sinew/examples/common/files.h"
#include "sinew/examples/common/progress_bar.h"
#include "trainer.h"

namespace ddp_rpc {
namespace {

using examples::fixed;

constexpr std::int64_t kTestBags = 2000;
constexpr std::int64_t kTestSeed = 7;

// A trainer waits for the others.
constexpr auto kPatience = sinew::kNoTimeout;

TrainerSettings settings_of(const Options& options, int trainers) {
  TrainerSettings settings;
  settings.trainers = trainers;
  settings.batch = options.batch;
  settings.lr = options.lr;
  settings.seed = options.seed;
  settings.device = options.device;
  return settings;
}

/// Whoever trains: some steps return their mean loss.
struct Crew {
  std::function<double(std::int64_t steps)> train;
  std::function<double()> accuracy;
};

examples::TrainingCurve run(const Crew& crew, const Options& options, const std::string& title,
                            std::ostream& log) {
  examples::TrainingCurve curve;
  curve.title = title;
  curve.clock = "step";
  curve.unit = "Loss; share of right answers";
  curve.names = {"training loss", "test accuracy"};
  examples::ProgressBar bar;
  for (std::int64_t done = 0; done < options.steps;) {
    bar.show(static_cast<double>(done) / static_cast<double>(options.steps),
             "step " + std::to_string(done) + " of " + std::to_string(options.steps));
    const std::int64_t steps = std::min(options.round, options.steps - done);
    const double loss = crew.train(steps);
    const double accuracy = crew.accuracy();
    done += steps;
    curve.points.push_back({static_cast<double>(done), {loss, accuracy}});
    bar.clear();
    log << "Step " + std::to_string(done) + ": loss " + fixed(loss, 4) + ", accuracy " +
               fixed(accuracy, 4) + "\n"
        << std::flush;
    if (!options.output.empty()) examples::write_curve(curve, options.output, "loss_curve");
  }
  return curve;
}

std::string title_of(int trainers) {
  return "Embedding on a server, dense part on " + std::to_string(trainers) +
         (trainers == 1 ? " trainer" : " trainers");
}

}  // namespace

void add_methods(sinew::MethodTable& methods) { methods.serve<EmbeddingTable, Trainer>(); }

examples::TrainingCurve train(const sinew::Worker& worker, int world_size, const Options& options,
                              std::ostream& log) {
  const int last_trainer = world_size - 2;
  const sinew::RemoteModule<EmbeddingTable> embedding(worker.peer(world_size - 1), options.seed);
  std::vector<sinew::RRef<Trainer>> trainers;
  TrainerSettings settings = settings_of(options, last_trainer);
  for (int rank = 1; rank <= last_trainer; ++rank) {
    trainers.push_back(worker.peer(rank).within(kPatience).remote<Trainer>(settings, embedding));
    ++settings.number;
  }
  Crew crew;
  crew.train = [&](std::int64_t steps) {
    std::vector<sinew::Future<double>> rounds;
    for (const auto& trainer : trainers) {
      rounds.push_back(trainer.within(kPatience).async<&Trainer::train>(steps));
    }
    // The first error ends it: another trainer may wait for the one that has it.
    double sum = 0;
    for (const double loss : sinew::wait_all(std::move(rounds))) sum += loss;
    return sum / last_trainer;
  };
  crew.accuracy = [&] {
    return trainers.front().within(kPatience).call<&Trainer::accuracy>(kTestBags, kTestSeed);
  };
  return run(crew, options, title_of(last_trainer), log);
}

examples::TrainingCurve train_alone(const Options& options, std::ostream& log) {
  LocalTrainer trainer(settings_of(options, options.trainers));
  Crew crew;
  crew.train = [&](std::int64_t steps) { return trainer.train(steps); };
  crew.accuracy = [&] { return trainer.accuracy(kTestBags, kTestSeed); };
  return run(crew, options, title_of(options.trainers) + ", in one process", log);
}

}  // namespace ddp_rpc
