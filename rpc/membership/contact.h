#pragma once

#include <string>
#include <utility>

namespace sinew::internal {

/// Where somebody of the job is to be asked.
struct Contact {
  /// Of a place that anybody may hold: a certificate must cover the address.
  static Contact at(std::string address) { return {std::move(address), ""}; }

  std::string address;
  /// Of the worker that is expected there, which its certificate must cover, and mostly covers
  /// instead of the address; empty: unknown.
  std::string name;
};

}  // namespace sinew::internal
