#include "sinew/examples/ps_rnn/corpus.h"

#include <cmath>
#include <stdexcept>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ps_rnn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Tokenize, TellsWordsMarksAndLinesApart) {
  EXPECT_THAT(tokenize("In the Beginning,\n\n 'tis the Lord's 2nd  day.\r\nAmen"),
              ElementsAre("in", "the", "beginning", ",", "<eos>", "'", "tis", "the", "lord's",
                          "2nd", "day", ".", "<eos>", "amen", "<eos>"));
  EXPECT_THAT(tokenize(""), ElementsAre());
  EXPECT_THAT(tokenize("\n \n\t\n"), ElementsAre());
}

TEST(Tokenize, KeepsOtherAlphabetsWhole) {
  EXPECT_THAT(tokenize("g\xc3\xa4rten \xce\xb1"),
              ElementsAre("g\xc3\xa4rten", "\xce\xb1", "<eos>"));
}

TEST(Corpus, NumbersWordsByFrequencyAndCapsThem) {
  const std::string text = "b a c a b a\n";
  Corpus corpus = make_corpus(text, {10, 0});
  EXPECT_THAT(corpus.words, ElementsAre("<unk>", "a", "b", "<eos>", "c"));
  EXPECT_THAT(corpus.train, ElementsAre(2, 1, 4, 1, 2, 1, 3));
  corpus = make_corpus(text, {3, 0});
  EXPECT_THAT(corpus.words, ElementsAre("<unk>", "a", "b"));
  EXPECT_THAT(corpus.train, ElementsAre(2, 1, 0, 1, 2, 1, 0));
  EXPECT_EQ(make_corpus(text, {10, 4}).train.size(), 4U);
}

TEST(Corpus, ValidatesWithOneBlockOfLinesInTen) {
  std::string text;
  for (int line = 0; line < 400; ++line) text += "w\n";
  const Corpus corpus = make_corpus(text, {10, 0});
  EXPECT_EQ(corpus.valid.size(), 2U * 20 * 2);
  EXPECT_EQ(corpus.train.size(), 2U * 360);
}

TEST(Corpus, NamesTheFileThatIsMissingOrTooShort) {
  const auto told = [](const char* file) -> std::string {
    try {
      load_corpus(file, {});
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(told("/nowhere/text"), HasSubstr("/nowhere/text"));
  EXPECT_THAT(told("/dev/null"), HasSubstr("/dev/null has 0 words"));
}

TEST(UnigramPerplexity, IsThatOfTheCountsPlusOne) {
  Corpus corpus;
  corpus.words = {"<unk>", "a", "b"};
  corpus.train = {1, 1, 1, 2, 2};
  corpus.valid = {1, 2};
  EXPECT_DOUBLE_EQ(unigram_perplexity(corpus),
                   std::exp(-(std::log(4.0 / 8) + std::log(3.0 / 8)) / 2));
}

TEST(Share, IsEqualForAll) {
  EXPECT_THAT(share_of({0, 1, 2, 3, 4, 5, 6}, 0, 3), ElementsAre(0, 1));
  EXPECT_THAT(share_of({0, 1, 2, 3, 4, 5, 6}, 2, 3), ElementsAre(4, 5));
}

}  // namespace
}  // namespace ps_rnn
