#pragma once

#include <cmath>
#include <string>
#include <string_view>
#include <tuple>

namespace sinew::internal {

/// Refuses fields of options that are out of their range: throws RpcError kInvalidArgument that
/// names the optimizer, the field and its value. NaN is out of every range.
class FieldChecker {
 public:
  explicit FieldChecker(std::string_view optimizer) : optimizer_(optimizer) {}

  void not_negative(const char* field, double value) const {
    require(value >= 0 && std::isfinite(value), field, value, "0 or more");
  }
  void fraction(const char* field, double value) const {
    require(value >= 0 && value < 1, field, value, "0 or more, and less than 1");
  }
  void fractions(const char* field, const std::tuple<double, double>& both) const {
    fraction(field, std::get<0>(both));
    fraction(field, std::get<1>(both));
  }
  void require(bool right, const char* field, double value, const char* want) const;
  /// For what an optimizer makes room for, or not, at a parameter's first step.
  void not_switched_on(const char* field, double now, double next) const;

 private:
  const std::string optimizer_;
};

}  // namespace sinew::internal
