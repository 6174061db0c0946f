#include "sinew/examples/ps_rnn/options.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ps_rnn {
namespace {

using testing::HasSubstr;

std::variant<Options, int> parse(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "program");
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  return parse_options(static_cast<int>(pointers.size()), pointers.data());
}

TEST(PsRnnOptions, PresetIsTheTutorialsWhereverItStands) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--preset", "tutorial", "--data", "x", "--nhid", "7"},
        std::vector<std::string>{"--nhid", "7", "--data", "x", "--preset=tutorial"}}) {
    const auto parsed = parse(words);
    const auto* options = std::get_if<Options>(&parsed);
    ASSERT_NE(options, nullptr);
    EXPECT_EQ(options->batch, 5);
    EXPECT_EQ(options->corpus.ntoken, 10);
    EXPECT_EQ(options->ninp, 2);
    EXPECT_EQ(options->nlayers, 4);
    EXPECT_EQ(options->nhid, 7) << "flags win";
    EXPECT_EQ(options->optimizer, "sgd");
    EXPECT_DOUBLE_EQ(options->learning_rate(9), 0.05);
  }
}

TEST(PsRnnOptions, RateSuitsTheOptimizerAndDecays) {
  const auto adam = parse({"--data", "x", "--lr-decay", "0.5"});
  EXPECT_DOUBLE_EQ(std::get<Options>(adam).learning_rate(1), 2e-3);
  EXPECT_DOUBLE_EQ(std::get<Options>(adam).learning_rate(3), 5e-4);
  const auto own = parse({"--data", "x", "--optimizer", "adagrad", "--lr", "0.3"});
  EXPECT_DOUBLE_EQ(std::get<Options>(own).learning_rate(1), 0.3);
}

struct Mistake {
  std::vector<std::string> arguments;
  std::vector<std::string> told;
};
class PsRnnMistake : public testing::TestWithParam<Mistake> {};

TEST_P(PsRnnMistake, IsNamedAndEndsTheProgramWithTwo) {
  testing::internal::CaptureStderr();
  const auto parsed = parse(GetParam().arguments);
  const std::string told = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(std::holds_alternative<int>(parsed));
  EXPECT_EQ(std::get<int>(parsed), 2);
  EXPECT_THAT(told, HasSubstr("ps_rnn: "));
  for (const std::string& part : GetParam().told) EXPECT_THAT(told, HasSubstr(part));
}

INSTANTIATE_TEST_SUITE_P(
    All, PsRnnMistake,
    testing::Values(Mistake{{"--data", "x", "--trainers", "2"}, {"--trainers"}},
                    Mistake{{"--data", "x", "--servers", "two"}, {"--servers", "'two'"}},
                    Mistake{{"--data", "x", "--servers", "9", "--ntoken", "4"}, {"--servers 9"}},
                    Mistake{{"--data", "x", "--ntoken", "1"}, {"--ntoken", "'1'"}},
                    Mistake{{"--data", "x", "--dropout", "1"}, {"--dropout", "'1'"}},
                    Mistake{{"--data", "x", "--optimizer", "lbfgs"}, {"--optimizer", "adagrad"}},
                    Mistake{{"--data", "x", "--lr", "nan"}, {"--lr", "'nan'"}},
                    Mistake{{"--data", "x", "--resume"}, {"--resume", "--checkpoint"}},
                    Mistake{{"--data", "x", "--preset", "huge"}, {"--preset", "'huge'"}},
                    Mistake{{"--data", "x", "--btach", "1"}, {"--btach"}}));

}  // namespace
}  // namespace ps_rnn
