#pragma once

#include <string>
#include <vector>

#include "sinew/tests/support/split_mix64.h"

namespace sinew::testing {

/// One of the seeds with some damage: bits, bytes, numbers at their bounds, parts that are cut out,
/// repeated, or taken from another seed.
inline std::string mutate(const std::vector<std::string>& seeds, SplitMix64& random) {
  std::string bytes = seeds[random.below(seeds.size())];
  const std::size_t changes = 1 + random.below(4);
  for (std::size_t i = 0; i < changes; ++i) {
    const std::size_t at = random.below(bytes.size() + 1);
    const std::size_t length = random.below(bytes.size() - at + 1);
    switch (random.below(8)) {
      case 0:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.below(8)));
        break;
      case 1:
        if (at < bytes.size()) bytes[at] = static_cast<char>(random.next());
        break;
      case 2:
        bytes.insert(at, 1, static_cast<char>(random.next()));
        break;
      case 3:
        bytes.erase(at, length);
        break;
      case 4:
        bytes.resize(at);
        break;
      case 5:
        bytes.insert(at, bytes.substr(at, length));
        break;
      case 6: {
        // As varints: 2^63 - 1, 2^64 - 1, 2^32, and one that is too long.
        static const std::string kNumbers[] = {
            "\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            "\x80\x80\x80\x80\x10", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"};
        bytes.replace(at, at < bytes.size() ? 1 : 0, kNumbers[random.below(4)]);
        break;
      }
      default: {
        const std::string& other = seeds[random.below(seeds.size())];
        const std::size_t from = random.below(other.size() + 1);
        bytes.replace(at, length, other, from, random.below(other.size() - from + 1));
        break;
      }
    }
  }
  return bytes;
}

}  // namespace sinew::testing
