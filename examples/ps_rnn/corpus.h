#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ps_rnn {

/// A text as numbers: each word, mark of punctuation and end of line is a token. Token 0 stands for
/// all words that are not among the most frequent ones.
struct Corpus {
  std::vector<std::int64_t> train;
  std::vector<std::int64_t> valid;
  /// Word by token; `<unk>` is the first one, the others come in the order of how frequent they are
  /// in the whole text.
  std::vector<std::string> words;

  std::int64_t tokens() const { return static_cast<std::int64_t>(words.size()); }
};

struct CorpusOptions {
  /// Most tokens that are told apart, `<unk>` among them; at least 2.
  std::int64_t ntoken = 10'000;
  /// Reads no more than so many tokens of the text; 0: all.
  std::int64_t limit = 0;
};

/// The words (in lower case, with apostrophes within them), marks and, for the end of each line
/// that has any, `<eos>`.
std::vector<std::string> tokenize(std::string_view text);

/// One block of lines in ten is for validation: they lie all over the text, since the end of a book
/// is not written like its beginning. The same text gives the same corpus everywhere. Throws
/// std::runtime_error with the name of the file when it cannot be read or has too few words.
Corpus load_corpus(const std::filesystem::path& file, const CorpusOptions& options);
Corpus make_corpus(std::string_view text, const CorpusOptions& options);

/// Perplexity on the validation part of a model that knows nothing but how frequent each token is
/// in the training part (counts plus one): what a model with a memory must beat.
double unigram_perplexity(const Corpus& corpus);

/// The part of `tokens` that belongs to one of `parts` readers: equal pieces, the rest is dropped.
std::vector<std::int64_t> share_of(const std::vector<std::int64_t>& tokens, std::int64_t part,
                                   std::int64_t parts);

}  // namespace ps_rnn
