#include <cmath>
#include <iostream>

#include "concepts.h"
#include "sinew/examples/common/files.h"

namespace basics {
namespace {

std::string number_text(double value) {
  const bool whole = value == std::floor(value);
  return whole ? examples::fixed(value, 0) + "." : examples::fixed(value, 4);
}

}  // namespace

void print_line(const std::string& line) {
  // As one piece, which the lines of others come before or after.
  std::cout << line + "\n" << std::flush;
}

std::string text_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kDouble).contiguous().view(-1);
  const auto* values = flat.data_ptr<double>();
  if (flat.numel() == 1) return "tensor(" + number_text(values[0]) + ")";
  std::string text;
  for (std::int64_t i = 0; i < flat.numel(); ++i) {
    text += (i == 0 ? "" : ", ") + number_text(values[i]);
  }
  return "tensor([" + text + "])";
}

}  // namespace basics
