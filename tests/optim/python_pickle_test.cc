// The pickles of Python's state dicts, as LibTorch is to read them.

#include "sinew/optim/internal/python_pickle.h"

#include <string>

#include <gtest/gtest.h>

namespace sinew::internal {
namespace {

std::string text(const std::string& bytes) {
  return "X" + std::string(1, static_cast<char>(bytes.size())) + std::string(3, '\0') + bytes;
}

const std::string kBegin = "\x80\x02";
const std::string kClass = "ccollections\nOrderedDict\n";
const std::string kNumber0("q\0", 2);
const std::string kGet0("h\0", 2);
// One entry; its value has an OrderedDict too, and looks like attributes.
std::string entries(const std::string& class_again) {
  return "q\x01(" + text("}q\x01X_metadata") + class_again + ")Ru";
}
const std::string kAttributes = "}q\x05" + text("_metadata") + "q\x06" + kGet0 + ")R(" + text("b") +
                                "}" + text("version") + "K\x01su" + "sb";

TEST(PythonPickle, AnOrderedDictBecomesADictionary) {
  const std::string ordered = kBegin + kClass + kNumber0 + ")R" + entries(kGet0);
  const std::string plain = kBegin + "}" + entries(kClass) + ".";
  EXPECT_EQ(with_plain_dictionary(ordered + "."), plain);
  EXPECT_EQ(with_plain_dictionary(ordered + kAttributes + "."), plain);
}

TEST(PythonPickle, WhatIsNoneStaysAsItIs) {
  const std::string whole = kBegin + kClass + kNumber0 + ")R" + entries(kGet0) + kAttributes + ".";
  // Damaged ones too.
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(with_plain_dictionary(whole.substr(0, size)), whole.substr(0, size));
  }
  for (const std::string& other : {kBegin + "}" + entries(kClass) + ".", std::string("\xff"),
                                   kBegin + "X\xff\xff\xff\xff", kBegin + "cno end"}) {
    EXPECT_EQ(with_plain_dictionary(other), other);
  }
}

}  // namespace
}  // namespace sinew::internal
