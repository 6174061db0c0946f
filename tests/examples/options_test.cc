#include "sinew/examples/rl/options.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rl {
namespace {

using testing::HasSubstr;

std::variant<Options, int> parse(const std::vector<std::string>& arguments) {
  std::vector<const char*> pointers = {"program"};
  for (const std::string& argument : arguments) pointers.push_back(argument.c_str());
  return parse_options(static_cast<int>(pointers.size()), pointers.data());
}

TEST(OptionsTest, HasDefaults) {
  const auto parsed = parse({});
  const auto* options = std::get_if<Options>(&parsed);
  ASSERT_NE(options, nullptr);
  EXPECT_EQ(options->max_steps, 500);
  EXPECT_EQ(options->log_interval, 10);
  EXPECT_FALSE(options->batch);
  EXPECT_EQ(options->envs, 1);
}

TEST(OptionsTest, ReadsEveryFlag) {
  const auto parsed = parse({"--gamma", "0.9", "--seed", "17", "--log-interval", "3", "--max-steps",
                             "400", "--batch", "--max-wait", "2.5", "--patience", "7", "--episodes",
                             "12", "--envs", "8", "--output", "somewhere"});
  const auto* options = std::get_if<Options>(&parsed);
  ASSERT_NE(options, nullptr);
  EXPECT_EQ(options->gamma, 0.9);
  EXPECT_EQ(options->seed, 17U);
  EXPECT_EQ(options->log_interval, 3);
  EXPECT_EQ(options->max_steps, 400);
  EXPECT_TRUE(options->batch);
  EXPECT_EQ(options->max_wait_ms, 2.5);
  EXPECT_EQ(options->patience_s, 7);
  EXPECT_EQ(options->episodes, 12);
  EXPECT_EQ(options->envs, 8);
  EXPECT_EQ(options->output, "somewhere");
}

TEST(OptionsTest, AnEpisodeHasStepsForAllObservers) {
  const auto parsed = parse({"--max-steps", "6"});
  const auto& options = std::get<Options>(parsed);
  EXPECT_EQ(problem_with(options, 3), "");
  EXPECT_THAT(problem_with(options, 4), HasSubstr("--max-steps 6"));
  EXPECT_THAT(problem_with(options, 4), HasSubstr("4 observers"));
}

TEST(OptionsTest, ManyEnvironmentsAreABatchAlready) {
  const auto parsed = parse({"--envs", "8", "--batch"});
  EXPECT_EQ(problem_with(std::get<Options>(parsed), 1),
            "--envs 8 asks for many actions in one call already: leave out --batch");
  const auto one = parse({"--envs", "1", "--batch"});
  EXPECT_EQ(problem_with(std::get<Options>(one), 1), "");
}

struct Mistake {
  std::vector<std::string> arguments;
  std::vector<std::string> told;
};

class OptionsMistake : public testing::TestWithParam<Mistake> {};

TEST_P(OptionsMistake, IsNamedAndEndsTheProgramWithTwo) {
  testing::internal::CaptureStderr();
  const auto parsed = parse(GetParam().arguments);
  const std::string told = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(std::holds_alternative<int>(parsed));
  EXPECT_EQ(std::get<int>(parsed), 2);
  EXPECT_THAT(told, HasSubstr("rl_agent: "));
  for (const std::string& part : GetParam().told) EXPECT_THAT(told, HasSubstr(part));
}

INSTANTIATE_TEST_SUITE_P(
    All, OptionsMistake,
    testing::Values(Mistake{{"--world-size", "2"}, {"--world-size"}},
                    Mistake{{"--gamma", "1.5"}, {"--gamma", "from 0 to 1", "'1.5'"}},
                    Mistake{{"--gamma", "nan"}, {"--gamma", "'nan'"}},
                    Mistake{{"--gamma=-0.1"}, {"--gamma", "'-0.1'"}},
                    Mistake{{"--seed", "-1"}, {"--seed", "'-1'"}},
                    Mistake{{"--seed", "99999999999999999999"}, {"--seed"}},
                    Mistake{{"--log-interval", "0"}, {"--log-interval", "'0'"}},
                    Mistake{{"--max-steps", "2.5"}, {"--max-steps", "'2.5'"}},
                    Mistake{{"--max-steps", "1000001"},
                            {"--max-steps", "whole number from 1 to 1000000", "'1000001'"}},
                    Mistake{{"--episodes", "0"}, {"--episodes", "'0'"}},
                    Mistake{{"--batch", "--max-wait", "-1"}, {"--max-wait", "'-1'"}},
                    Mistake{{"--max-wait", "5"}, {"--max-wait", "--batch"}},
                    Mistake{{"--envs", "0"}, {"--envs", "whole number from 1 to 1024", "'0'"}},
                    Mistake{{"--envs", "many"}, {"--envs", "'many'"}},
                    Mistake{{"--envs", "1025"}, {"--envs", "from 1 to 1024", "'1025'"}},
                    Mistake{{"--patience", "-1"}, {"--patience", "'-1'"}},
                    Mistake{{"--gama", "1"}, {"--gama"}}));

TEST(OptionsTest, HelpIsNoMistake) {
  testing::internal::CaptureStdout();
  const auto parsed = parse({"--help"});
  const std::string help = testing::internal::GetCapturedStdout();
  EXPECT_EQ(std::get<int>(parsed), 0);
  for (const char* flag : {"--gamma", "--seed", "--log-interval", "--max-steps"}) {
    EXPECT_THAT(help, HasSubstr(flag));
  }
}

}  // namespace
}  // namespace rl
