#pragma once

#include <string>
#include <utility>

namespace sinew::internal {

/// Where a process of the job can be asked.
struct Contact {
  /// Of a place that anybody may hold: a certificate must cover the address.
  static Contact at(std::string address) { return {std::move(address), "", ""}; }

  std::string address;
  /// Of the worker that is expected there, which its certificate must cover, and mostly covers
  /// instead of the address; empty: unknown.
  std::string name;
  /// Of which the address was looked up, and which a certificate must cover in its place; empty:
  /// it was not.
  std::string host = {};

  /// What a certificate must cover; empty: the host of the address.
  const std::string& certified() const { return name.empty() ? host : name; }
};

}  // namespace sinew::internal
