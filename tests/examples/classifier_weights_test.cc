// Weights from files for the networks of image_classifier.

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "ATen/ATen.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rank_threads.h"
#include "sinew/examples/common/files.h"
#include "sinew/examples/image_classifier/first_rank.h"
#include "sinew/examples/image_classifier/models/resnet.h"
#include "sinew/examples/image_classifier/models/weights.h"
#include "sinew/optim/state_dict.h"
#include "sinew/tests/support/temporary_folder.h"

namespace image_classifier {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

ResNetOptions small_network(std::int64_t classes) {
  ResNetOptions options;
  options.channels = 1;
  options.width = 4;
  options.classes = classes;
  return options;
}

sinew::optim::StateDict state_of(const torch::nn::Module& network) {
  sinew::optim::StateDict state;
  for (const auto& one : network.named_parameters()) state[one.key()] = one.value();
  for (const auto& one : network.named_buffers()) state[one.key()] = one.value();
  return state;
}

class WeightsTest : public ::testing::Test {
 protected:
  std::filesystem::path saved(const sinew::optim::StateDict& state,
                              const std::string& name = "a.pt") {
    sinew::optim::save_state_dict(state, (folder_ / name).string());
    return folder_ / name;
  }
  static std::string error_of(torch::nn::Module& network, const std::filesystem::path& file,
                              Head head = Head::kFromFile) {
    try {
      load_weights(network, file, head);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "no error";
  }

  const sinew::testing::TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
  ResNet network_{small_network(10)};
};

TEST_F(WeightsTest, AreThoseOfTheFile) {
  ResNet other(small_network(10));
  other.forward(at::randn({4, 1, 32, 32}));
  sinew::optim::StateDict state = state_of(other);
  // Old files do not have it.
  state.erase("bn1.num_batches_tracked");
  load_weights(network_, saved(state), Head::kFromFile);
  network_.eval();
  other.eval();
  const at::Tensor pictures = at::randn({2, 1, 32, 32});
  EXPECT_TRUE(at::equal(network_.forward(pictures), other.forward(pictures)));
}

TEST_F(WeightsTest, ANewHeadIsLeftAlone) {
  ResNet other(small_network(1000));
  const std::filesystem::path file = saved(state_of(other));
  const at::Tensor head = network_.named_parameters()["fc.weight"].detach().clone();
  EXPECT_THAT(
      error_of(network_, file),
      AllOf(HasSubstr(file.string()), HasSubstr("'fc.weight' has [1000, 32] and not [10, 32]"),
            HasSubstr("'fc.bias'"), HasSubstr("--reset-head")));
  load_weights(network_, file, Head::kNew);
  EXPECT_TRUE(at::equal(network_.named_parameters()["fc.weight"], head));
  EXPECT_TRUE(at::equal(network_.named_parameters()["conv1.weight"],
                        other.named_parameters()["conv1.weight"]));
}

TEST_F(WeightsTest, WhatDoesNotFitIsNamed) {
  const sinew::optim::StateDict before =
      state_of(*std::dynamic_pointer_cast<ResNet>(network_.clone()));
  sinew::optim::StateDict state = state_of(ResNet(small_network(10)));
  state.erase("layer1.0.bn1.weight");
  state["head.weight"] = at::ones({2});
  state["conv1.weight"] = at::ones({3, 3});
  EXPECT_THAT(error_of(network_, saved(state)),
              AllOf(HasSubstr("; missing: 'layer1.0.bn1.weight';"),
                    HasSubstr("; unexpected: 'head.weight';"),
                    HasSubstr("; of another shape: 'conv1.weight' has [3, 3] and not [4, 1, 7, 7]"),
                    Not(HasSubstr("--reset-head"))));
  EXPECT_THAT(error_of(network_, saved({{"x", at::ones({1})}}, "b.pt")),
              HasSubstr(" more; unexpected: 'x'"));
  for (const auto& [name, tensor] : state_of(network_)) {
    EXPECT_TRUE(at::equal(tensor, before.at(name))) << name << ": nothing has changed";
  }
}

TEST_F(WeightsTest, FilesThatAreNoneAreNamed) {
  EXPECT_THAT(error_of(network_, folder_ / "nowhere.pt"), HasSubstr("nowhere.pt"));
  examples::write_file(folder_ / "c.pt", "no weights");
  EXPECT_THAT(error_of(network_, folder_ / "c.pt"), HasSubstr("c.pt"));
}

// As torch.save(model.state_dict()) of Python writes it.
TEST_F(WeightsTest, AreReadFromAFileOfPythons) {
  if (std::system("/usr/bin/python3 -c 'import torch' 2> /dev/null") != 0) {
    GTEST_SKIP() << "there is no PyTorch for Python here: apt-get install python3-torch";
  }
  const std::filesystem::path file = folder_ / "python.pt";
  std::string script =
      "import torch\n"
      "class Model(torch.nn.Module):\n"
      "    pass\n"
      "def at(model, name):\n"
      "    for part in name:\n"
      "        if not hasattr(model, part):\n"
      "            model.add_module(part, Model())\n"
      "        model = getattr(model, part)\n"
      "    return model\n"
      "model = Model()\n";
  for (const auto& [name, tensor] : state_of(network_)) {
    const bool is_buffer =
        name.find("running") != std::string::npos || name.find("num_batches") != std::string::npos;
    const std::size_t dot = name.rfind('.');
    std::string sizes;
    for (const std::int64_t size : tensor.sizes()) sizes += std::to_string(size) + ", ";
    const std::string value =
        is_buffer && tensor.dim() == 0 ? "torch.tensor(7)" : "torch.full((" + sizes + "), 0.25)";
    script += "at(model, '" + name.substr(0, dot) + "'.split('.'))." +
              (is_buffer ? "register_buffer" : "register_parameter") + "('" + name.substr(dot + 1) +
              "', " + (is_buffer ? value : "torch.nn.Parameter(" + value + ")") + ")\n";
  }
  script += "torch.save(model.state_dict(), '" + file.string() + "')\n";
  examples::write_file(folder_ / "write.py", script);
  ASSERT_EQ(std::system(("/usr/bin/python3 " + (folder_ / "write.py").string()).c_str()), 0);
  load_weights(network_, file, Head::kFromFile);
  for (const auto& [name, tensor] : state_of(network_)) {
    EXPECT_TRUE(at::equal(tensor, at::full_like(tensor, tensor.dim() == 0 ? 7 : 0.25))) << name;
  }
}

TEST(OnFirstRankTest, AllRanksHearOfAFailure) {
  examples::testing::as_ranks(3, [](const sinew::ProcessGroup& group) {
    int calls = 0;
    on_first_rank(group, [&] { ++calls; });
    EXPECT_EQ(calls, group.rank() == 0 ? 1 : 0);
    try {
      on_first_rank(group, [] { throw std::runtime_error("no such file"); });
      ADD_FAILURE();
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "no such file");
    }
  });
}

TEST(SamePicturesTest, ARankWithOthersSaysWhichIsTheFirst) {
  const auto error_with = [](const std::string& first, const std::string& own) {
    std::string error;
    examples::testing::as_ranks(2, [&](const sinew::ProcessGroup& group) {
      try {
        check_same_pictures(group.rank() == 0 ? first : own, group);
      } catch (const std::runtime_error& difference) {
        error = difference.what();
      }
    });
    return error;
  };
  EXPECT_EQ(error_with("a/1.png\nb/2.png\n", "a/1.png\nb/2.png\n"), "");
  EXPECT_THAT(
      error_with("a/1.png\nb/2.png\n", "a/1.png\nb/3.png\n"),
      HasSubstr("rank 1 has other pictures than rank 0: 'b/3.png' where that has 'b/2.png'"));
  EXPECT_THAT(error_with("a/1.png\n", "a/1.png\nb/3.png\n"),
              HasSubstr("'b/3.png' where that has nothing more"));
  EXPECT_THAT(error_with("a/1.png\n", "\n"), HasSubstr("'' where that has 'a/1.png'"));
}

}  // namespace
}  // namespace image_classifier
