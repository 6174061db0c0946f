#include "corpus.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "sinew/examples/common/files.h"

namespace ps_rnn {
namespace {

constexpr std::string_view kEndOfLine = "<eos>";
constexpr std::int64_t kUnknown = 0;
constexpr std::int64_t kLinesInBlock = 20;
constexpr std::int64_t kBlocksPerValidation = 10;

// What is not ASCII counts as a letter, so that words in UTF-8 stay whole.
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r') || c == '\0'; }
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::vector<std::string> most_frequent(const std::vector<std::string>& text, std::size_t most) {
  std::unordered_map<std::string_view, std::int64_t> counts;
  for (const std::string& word : text) ++counts[word];
  std::vector<std::pair<std::string_view, std::int64_t>> sorted(counts.begin(), counts.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  if (sorted.size() > most) sorted.resize(most);
  std::vector<std::string> words;
  words.reserve(sorted.size());
  for (const auto& [word, count] : sorted) words.emplace_back(word);
  return words;
}

}  // namespace

std::vector<std::string> tokenize(std::string_view text) {
  std::vector<std::string> tokens;
  std::size_t in_line = 0;
  const auto end_line = [&] {
    if (in_line > 0) tokens.emplace_back(kEndOfLine);
    in_line = 0;
  };
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t begin = i;
    if (is_letter(text[i])) {
      std::string word;
      // An apostrophe belongs to a word when letters are on both of its sides.
      while (i < text.size() && (is_letter(text[i]) || (text[i] == '\'' && i + 1 < text.size() &&
                                                        is_letter(text[i + 1])))) {
        word += lower(text[i++]);
      }
      tokens.push_back(std::move(word));
      ++in_line;
      continue;
    }
    ++i;
    if (text[begin] == '\n') {
      end_line();
    } else if (!is_space(text[begin])) {
      tokens.emplace_back(1, text[begin]);
      ++in_line;
    }
  }
  end_line();
  return tokens;
}

Corpus make_corpus(std::string_view text, const CorpusOptions& options) {
  std::vector<std::string> tokens = tokenize(text);
  if (options.limit > 0 && tokens.size() > static_cast<std::size_t>(options.limit)) {
    tokens.resize(static_cast<std::size_t>(options.limit));
  }
  Corpus corpus;
  corpus.words = most_frequent(tokens, static_cast<std::size_t>(options.ntoken - 1));
  corpus.words.insert(corpus.words.begin(), "<unk>");
  std::unordered_map<std::string_view, std::int64_t> ids;
  for (std::size_t id = 1; id < corpus.words.size(); ++id) {
    ids.emplace(corpus.words[id], static_cast<std::int64_t>(id));
  }
  std::int64_t line = 0;
  for (const std::string& token : tokens) {
    const auto found = ids.find(token);
    const bool valid = line / kLinesInBlock % kBlocksPerValidation == kBlocksPerValidation - 1;
    (valid ? corpus.valid : corpus.train).push_back(found == ids.end() ? kUnknown : found->second);
    if (token == kEndOfLine) ++line;
  }
  return corpus;
}

Corpus load_corpus(const std::filesystem::path& file, const CorpusOptions& options) {
  Corpus corpus = make_corpus(examples::read_file(file), options);
  if (corpus.valid.empty()) {
    throw std::runtime_error(file.string() + " has " + std::to_string(corpus.train.size()) +
                             " words in too few lines: one block of " +
                             std::to_string(kLinesInBlock) + " lines in " +
                             std::to_string(kBlocksPerValidation) +
                             " is for validation, and there is none; take a longer text");
  }
  return corpus;
}

double unigram_perplexity(const Corpus& corpus) {
  std::vector<double> counts(corpus.words.size(), 1.0);
  for (const std::int64_t token : corpus.train) ++counts[static_cast<std::size_t>(token)];
  const auto total = static_cast<double>(corpus.train.size() + corpus.words.size());
  double surprise = 0;
  for (const std::int64_t token : corpus.valid) {
    surprise -= std::log(counts[static_cast<std::size_t>(token)] / total);
  }
  return std::exp(surprise / static_cast<double>(corpus.valid.size()));
}

std::vector<std::int64_t> share_of(const std::vector<std::int64_t>& tokens, std::int64_t part,
                                   std::int64_t parts) {
  const auto size = static_cast<std::int64_t>(tokens.size()) / parts;
  return {tokens.begin() + part * size, tokens.begin() + (part + 1) * size};
}

}  // namespace ps_rnn
