#pragma once

#include <stdexcept>

namespace sinew::testing {

/// What a test has found wrong. Test frameworks fail a test that ends with an exception, and show
/// its text.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace sinew::testing
