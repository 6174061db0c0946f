// Checkpoints of which a part is damaged, that are saved by several at once, or on a disk that is
// full.

#include <sys/resource.h>
#include <torch/nn/modules/batchnorm.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ATen/ATen.h"
#include "sinew/optim/internal/checkpoint_folder.h"
#include "sinew/optim/internal/checkpoint_round.h"
#include "sinew/optim/internal/durable_file.h"
#include "sinew/optim/internal/pending_saves.h"
#include "sinew/tests/optim/training.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/processes.h"
#include "sinew/tests/support/temporary_folder.h"

namespace testcheckpoint {

/// Has buffers.
class Normed : public torch::nn::Module {
 public:
  explicit Normed(std::int64_t width) {
    norm_ = register_module("norm", torch::nn::BatchNorm1d(width));
    frozen_ = register_parameter("frozen", at::ones({width}), /*requires_grad=*/false);
  }
  at::Tensor forward(const at::Tensor& input) { return norm_->forward(input) * frozen_; }
  std::vector<at::Tensor> state() {
    std::vector<at::Tensor> all = buffers();
    for (const at::Tensor& parameter : parameters()) all.push_back(parameter.detach().clone());
    for (at::Tensor& tensor : all) tensor = tensor.clone();
    return all;
  }
  void set_frozen(double value) {
    const at::AutoGradMode no_grad(false);
    frozen_.fill_(value);
  }

 private:
  torch::nn::BatchNorm1d norm_{nullptr};
  at::Tensor frozen_;
};

}  // namespace testcheckpoint

SINEW_MODULE(testcheckpoint::Normed, (std::int64_t), state, set_frozen);

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using sinew::CallOptions;
using sinew::ErrorCode;
using sinew::RemoteModule;
using sinew::RpcError;
using sinew::internal::CheckpointFolder;
using sinew::internal::CheckpointId;
using sinew::internal::CheckpointManifest;
using sinew::internal::CheckpointParts;
using sinew::internal::DurableFile;
using sinew::internal::whole_checkpoints;
using sinew::optim::DistributedOptimizer;
using sinew::testing::error_of;
using sinew::testing::files_in;
using sinew::testing::TemporaryFolder;
using testcheckpoint::Normed;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testoptim::batch;
using testoptim::difference;
using testoptim::RemoteTraining;

void damage(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(fs::file_size(path) / 2));
  file << "damage";
}

/// No file of this process grows beyond that.
class SmallDisk {
 public:
  explicit SmallDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~SmallDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

class CheckpointFaults : public sinew::testing::ClusterTest {
 protected:
  void start_workers() {
    sinew::MethodTable methods = sinew::serve<Normed>();
    testoptim::add_methods(methods);
    start(3, methods);
    for (int rank = 1; rank < 3; ++rank) {
      fs::create_directories(root(rank));
      sinew::optim::serve_checkpoints(worker(rank), root(rank));
    }
  }
  std::string root(int rank) const { return folder_.file("host" + std::to_string(rank)); }
  std::string data(int rank, int number) const {
    return root(rank) + "/run/worker" + std::to_string(rank) + ".00000" + std::to_string(number) +
           ".pt";
  }

  const TemporaryFolder folder_;
};
SINEW_INSTANTIATE_CLUSTER_TEST(CheckpointFaults);

TEST_P(CheckpointFaults, OneThatIsDamagedAnywhereIsLeftForTheOneBefore) {
  start_workers();
  const RemoteTraining training(worker(0), 2, false);
  const DistributedOptimizer optimizer(worker(0), training.parameters(),
                                       sinew::optim::AdamOptions());
  optimizer.save("run", "one");
  const std::vector<at::Tensor> at_one = training.values();
  training.step(optimizer, batch(0));
  optimizer.save("run", "two");
  const std::vector<at::Tensor> at_two = training.values();
  training.step(optimizer, batch(1));
  const std::vector<at::Tensor> after = training.values();

  damage(data(2, 2));
  // Worker 1 could have loaded it, and has not.
  RpcError error = error_of([&] { optimizer.load("run", 2); });
  EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
  EXPECT_THAT(error.message(), HasSubstr("worker2.000002.pt' is damaged"));
  EXPECT_EQ(difference(training.values(), after), 0);
  EXPECT_GT(difference(at_two, after), 0);
  EXPECT_EQ(optimizer.load("run").note, "one");
  EXPECT_EQ(difference(training.values(), at_one), 0);

  std::ofstream(root(1) + "/run/worker1.000002.manifest") << "something else\n";
  EXPECT_EQ(optimizer.load("run").number, 1U);
  error = error_of([&] { optimizer.load("run", 2); });
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_THAT(error.message(),
              HasSubstr("no checkpoint 2 in 'run' that all owners have: 'worker1' has [1], "
                        "'worker2' has [1, 2]"));
  damage(data(1, 1));
  EXPECT_EQ(error_of([&] { optimizer.load("run"); }).code(), ErrorCode::kDataLoss);
  // A new one is not kept from being saved, and is the only one then.
  EXPECT_EQ(optimizer.save("run", "three").number, 3U);
  EXPECT_EQ(optimizer.load("run").note, "three");
}

TEST_P(CheckpointFaults, SeveralMaySaveAtOnce) {
  start_workers();
  const RemoteTraining training(worker(0), 2, false);
  const DistributedOptimizer optimizer(worker(0), training.parameters(),
                                       sinew::optim::AdamOptions());
  constexpr int kThreads = 3;
  constexpr int kSaves = 4;
  std::vector<std::vector<std::uint64_t>> numbers(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int save = 0; save < kSaves; ++save) {
        EXPECT_NO_THROW(
            numbers[static_cast<std::size_t>(i)].push_back(optimizer.save("run").number));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<std::uint64_t> all;
  for (const auto& of_one : numbers) {
    EXPECT_TRUE(std::is_sorted(of_one.begin(), of_one.end()));
    all.insert(of_one.begin(), of_one.end());
  }
  EXPECT_EQ(all.size(), std::size_t{kThreads * kSaves});
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(optimizer.load("run").number, *all.rbegin());
  // The next one leaves itself and the one before, of whoever saved before.
  optimizer.save("run");
  EXPECT_EQ(files_in(root(1) + "/run").size(), 4U);
  EXPECT_EQ(files_in(root(2) + "/run").size(), 4U);
}

TEST_P(CheckpointFaults, OneWhoseTimeIsOverMayBeTriedAgain) {
  start_workers();
  const RemoteTraining training(worker(0), 2, false);
  const DistributedOptimizer optimizer(worker(0), training.parameters(),
                                       sinew::optim::AdamOptions());
  CallOptions hurried;
  int given_up = 0;
  for (int round = 0; round < 20; ++round) {
    hurried.timeout = (round + 1) * 200us;
    try {
      optimizer.save("run", "hurried", hurried);
    } catch (const RpcError& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded) << error.what();
      ++given_up;
    }
  }
  EXPECT_GT(given_up, 0);
  training.step(optimizer, batch(0));
  const std::vector<at::Tensor> saved = training.values();
  const auto checkpoint = optimizer.save("run", "at last");
  training.step(optimizer, batch(1));
  EXPECT_EQ(optimizer.load("run").number, checkpoint.number);
  EXPECT_EQ(difference(training.values(), saved), 0);
}

TEST_P(CheckpointFaults, ANumberIsNewToAllOwners) {
  start_workers();
  const RemoteTraining training(worker(0), 2, false);
  const DistributedOptimizer optimizer(worker(0), training.parameters(),
                                       sinew::optim::AdamOptions());
  // What the second owner has of a save that failed at the first.
  fs::create_directories(root(2) + "/run");
  std::ofstream(data(2, 5)) << "left";
  EXPECT_EQ(optimizer.save("run").number, 6U);
  EXPECT_EQ(optimizer.load("run").number, 6U);
}

TEST_P(CheckpointFaults, AFullDiskLeavesWhatWasThere) {
  start_workers();
  const RemoteTraining training(worker(0), 2, false);
  const DistributedOptimizer optimizer(worker(0), training.parameters(),
                                       sinew::optim::AdamOptions());
  optimizer.save("run", "one");
  const std::vector<std::string> before = files_in(root(1) + "/run");
  for (int i = 0; i < 2; ++i) {
    const SmallDisk disk(1000);
    const RpcError error = error_of([&] { optimizer.save("run", "two"); });
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted) << error.what();
    EXPECT_THAT(error.message(), HasSubstr("2 of 2 owners failed: 'worker1': cannot write '"));
  }
  EXPECT_EQ(files_in(root(1) + "/run"), before);
  EXPECT_EQ(optimizer.load("run").note, "one");
  optimizer.save("run", "three");
  EXPECT_EQ(optimizer.load("run").note, "three");
}

TEST_P(CheckpointFaults, BuffersAndFrozenParametersAreRestored) {
  start_workers();
  const RemoteModule<Normed> net(worker(0), "worker1", 3);
  const DistributedOptimizer optimizer(worker(0), net.remote_parameters(),
                                       sinew::optim::SgdOptions());
  optimizer.keep(net.remote_buffers());
  optimizer.keep(net.remote_buffers());
  const at::Tensor input = at::arange(12, at::kFloat).reshape({4, 3});
  net.forward(input);
  net.module_rref().call<&Normed::set_frozen>(2.0);
  const auto saved = net.module_rref().call<&Normed::state>();
  EXPECT_EQ(saved.size(), 6U);
  optimizer.save("run");
  net.forward(input * 5);
  net.module_rref().call<&Normed::set_frozen>(3.0);
  EXPECT_GT(difference(net.module_rref().call<&Normed::state>(), saved), 0);
  optimizer.load("run");
  const auto loaded = net.module_rref().call<&Normed::state>();
  for (std::size_t i = 0; i < saved.size(); ++i) EXPECT_TRUE(loaded[i].equal(saved[i])) << i;

  // The same elements that the module uses.
  net.eval();
  const at::Tensor normed = net.forward(input);
  EXPECT_GT((normed - 2 * (input - saved[0]) / (saved[1] + 1e-5).sqrt()).abs().max().item<double>(),
            -1);
  EXPECT_LT((normed - 2 * (input - saved[0]) / (saved[1] + 1e-5).sqrt()).abs().max().item<double>(),
            1e-4);

  const DistributedOptimizer without(worker(0), net.remote_parameters(),
                                     sinew::optim::SgdOptions());
  RpcError error = error_of([&] { without.load("run"); });
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(
      error.message(),
      HasSubstr("in addition to the parameters it has the tensors [Float [3], Float [3], Long []], "
                "and this optimizer has [] here"));
  const auto elsewhere = sinew::make_rref(worker(0), at::ones({1}));
  const auto here = net.remote_buffers().front();
  error = error_of([&] { without.keep({here, elsewhere}); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr("tensor 1 of those to keep is at worker 'worker0'"));
  error = error_of([&] { without.keep({here, sinew::RRef<at::Tensor>()}); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr("tensor 1 of those to keep is an empty reference"));
}

// ---- The parts alone.

TEST(CheckpointFolderTest, LeftoversGoAndOthersFilesStay) {
  const TemporaryFolder root;
  const CheckpointFolder folder(root.file(""), "run", "a.b");
  const std::string place = root.file("run");
  CheckpointManifest manifest;
  manifest.number = 1;
  manifest.save = 77;
  manifest.notes.note = "a note\nof lines";
  folder.write(manifest, "bytes");
  const std::string outside = root.file("outside");
  std::ofstream(outside) << "untouched";
  for (const char* name :
       {"a.b.000004.pt", "a.b.000002.manifest.0123456789abcdef.unfinished", "a.000001.pt",
        "a.b.c.000001.pt", "a.b.000003.pt.bak", "notes", "a.b.000005.pt.00.unfinished"}) {
    std::ofstream(place + "/" + name) << "x";
  }
  fs::create_symlink(outside, place + "/a.b.000006.pt.unfinished");
  EXPECT_EQ(folder.parts().last, 5U);
  EXPECT_THAT(folder.parts().whole, ElementsAre(CheckpointId{1, 77}));
  manifest.number = 6;
  folder.write(manifest, "others");
  EXPECT_THAT(files_in(place),
              ElementsAre("a.000001.pt", "a.b.000001.manifest", "a.b.000001.pt",
                          "a.b.000003.pt.bak", "a.b.000006.manifest", "a.b.000006.pt",
                          "a.b.000006.pt.unfinished", "a.b.c.000001.pt", "notes"));
  EXPECT_EQ(folder.read_manifest(6).notes.note, "a note\nof lines");
  EXPECT_EQ(fs::file_size(outside), 9U);
  EXPECT_EQ(error_of([&] { folder.write(manifest, "again"); }).code(), ErrorCode::kAlreadyExists);
  folder.check_data(folder.read_manifest(6));
  // One that another number has been given to is none.
  for (const char* ending : {".manifest", ".pt"}) {
    fs::copy_file(place + "/a.b.000006" + ending, place + "/a.b.000007" + ending);
  }
  EXPECT_THAT(folder.parts().whole, ElementsAre(CheckpointId{1, 77}, CheckpointId{6, 77}));
  EXPECT_EQ(folder.parts().last, 7U);
  for (const char* ending : {".manifest", ".pt"}) fs::remove(place + "/a.b.000007" + ending);
  // One whose manifest cannot have its name leaves nothing.
  manifest.number = 8;
  fs::create_directory(place + "/a.b.000008.manifest");
  EXPECT_EQ(error_of([&] { folder.write(manifest, "bytes"); }).code(), ErrorCode::kAlreadyExists);
  EXPECT_FALSE(fs::exists(place + "/a.b.000008.pt"));
  fs::remove(place + "/a.b.000008.manifest");
  folder.remove_before(6);
  EXPECT_THAT(files_in(place),
              ElementsAre("a.000001.pt", "a.b.000003.pt.bak", "a.b.000006.manifest",
                          "a.b.000006.pt", "a.b.000006.pt.unfinished", "a.b.c.000001.pt", "notes"));
}

TEST(CheckpointFolderTest, WhatOthersHavePutThereIsNotLoaded) {
  const TemporaryFolder root;
  const CheckpointFolder folder(root.file(""), "run", "a");
  CheckpointManifest manifest;
  manifest.number = 1;
  folder.write(manifest, "bytes");
  const std::string data = folder.data_path(1);
  const std::string file = root.file("run/a.000001.manifest");
  // Another worker's, under this one's name.
  fs::copy_file(file, root.file("run/b.000001.manifest"));
  fs::copy_file(data, root.file("run/b.000001.pt"));
  const CheckpointFolder others(root.file(""), "run", "b");
  EXPECT_THAT(error_of([&] { others.read_manifest(1); }).message(),
              HasSubstr("b.000001.manifest' is the manifest of worker 'a'"));
  EXPECT_THAT(others.parts().whole, IsEmpty());
  // A folder that lies elsewhere.
  fs::create_directory_symlink(root.file("run"), root.file("link"));
  for (const char* name : {"link", "link/run"}) {
    EXPECT_THAT(error_of([&] { CheckpointFolder(root.file(""), name, "a"); }).message(),
                HasSubstr("link' is a symbolic link"));
  }
  // A file that lies elsewhere.
  fs::rename(data, root.file("elsewhere"));
  fs::create_symlink(root.file("elsewhere"), data);
  EXPECT_THAT(error_of([&] { folder.check_data(folder.read_manifest(1)); }).message(),
              HasSubstr("a.000001.pt' is no regular file"));
  if (::geteuid() != 0) return;
  ASSERT_EQ(::chown(file.c_str(), 12345, 0), 0);
  const sinew::RpcError error = error_of([&] { folder.read_manifest(1); });
  EXPECT_EQ(error.code(), ErrorCode::kPermissionDenied);
  EXPECT_THAT(error.message(), HasSubstr("belongs to user 12345"));
}

TEST(CheckpointFolderTest, ManifestsOfTheFormerFormatAreRead) {
  const TemporaryFolder root;
  const CheckpointFolder folder(root.file(""), "run", "a");
  fs::create_directories(root.file("run"));
  std::ofstream(root.file("run/a.000003.pt")) << "bytes";
  std::ofstream(root.file("run/a.000003.manifest"))
      << "sinew checkpoint 1\nworker: a\nnumber: 3\noptimizer: SGD\nnote: old\ndata_bytes: 5\n"
      << "data_sha256: " << sinew::internal::sha256("bytes") << "\nparameter: 0 Float [1]\n";
  EXPECT_THAT(folder.parts().whole, ElementsAre(CheckpointId{3, 0}));
  const CheckpointManifest manifest = folder.read_manifest(3);
  EXPECT_EQ(manifest.notes.note, "old");
  EXPECT_NO_THROW(folder.check_data(manifest));
}

TEST(DurableFileTest, IsThereWholeOrNotAtAll) {
  const TemporaryFolder root;
  const std::string path = root.file("file");
  {
    DurableFile first(path, "first");
    const DurableFile second(path, "second");
    EXPECT_TRUE(DurableFile::is_under_way(path));
    EXPECT_TRUE(DurableFile::is_under_way(second.unfinished()));
    EXPECT_FALSE(fs::exists(path));
    first.publish();
  }
  EXPECT_FALSE(DurableFile::is_under_way(path));
  EXPECT_THAT(files_in(root.file("")), ElementsAre("file"));
  DurableFile third(path, "third");
  EXPECT_EQ(error_of([&] { third.publish(); }).code(), ErrorCode::kAlreadyExists);
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), "first");
  EXPECT_EQ(sinew::internal::sha256_of_file(path), sinew::internal::sha256("first"));
  EXPECT_EQ(error_of([&] { DurableFile(root.file("none/file"), ""); }).code(),
            ErrorCode::kNotFound);
}

// Those whose trainers were lost do not pile up.
TEST(PendingSavesTest, OldOnesThatNobodyAsksForAreForgotten) {
  sinew::internal::PendingSaves saves;
  const sinew::Promise<void> writing(nullptr);
  saves.add({1, 7}, writing.future());
  for (std::uint64_t number = 2; number <= 40; ++number) {
    saves.add({number, 7}, sinew::make_ready_future());
  }
  EXPECT_EQ(error_of([&] { saves.take({2, 7}); }).code(), ErrorCode::kNotFound);
  EXPECT_EQ(error_of([&] { saves.take({40, 8}); }).code(), ErrorCode::kNotFound);
  EXPECT_TRUE(saves.take({40, 7}).done());
  // One that is being written is not over.
  EXPECT_FALSE(saves.take({1, 7}).done());
  EXPECT_EQ(error_of([&] { saves.take({1, 7}); }).code(), ErrorCode::kNotFound);
}

TEST(WholeCheckpointsTest, AreThoseOfWhichEachOwnerHasItsPart) {
  const CheckpointParts one{4, {{1, 10}, {2, 20}, {3, 30}}};
  const CheckpointParts two{4, {{1, 11}, {2, 20}, {3, 30}, {4, 40}}};
  EXPECT_THAT(whole_checkpoints({one, two}), ElementsAre(CheckpointId{2, 20}, CheckpointId{3, 30}));
  EXPECT_THAT(whole_checkpoints({one, two, CheckpointParts()}), IsEmpty());
  EXPECT_THAT(whole_checkpoints({}), IsEmpty());
}

}  // namespace
