#pragma once

#include <string>
#include <utility>

#include "sinew/rpc/membership/directory.h"

namespace sinew::internal {

/// Where somebody of the job is to be asked.
struct Contact {
  /// Of a place that anybody may hold, such as a seed: a certificate must cover the address.
  static Contact at(std::string address) { return {std::move(address), ""}; }
  static Contact of(const Member& member) { return {member.address, member.worker.name}; }

  std::string address;
  /// Of the worker that is expected there, which its certificate must cover, and mostly covers
  /// instead of the address; empty: unknown.
  std::string name;
};

}  // namespace sinew::internal
