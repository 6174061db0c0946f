#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>

/// Files of pictures for tests.
namespace examples::testing {

/// An IDX file of bytes: the header, then `values`.
std::string idx_file(std::initializer_list<std::uint32_t> sizes, const std::string& values);

/// MNIST's four files with pictures of 28 times 28 pixels: noise, and a bright bar whose height is
/// that of its class, so that they can be learnt. Drawn from `seed`.
void write_mnist(const std::filesystem::path& folder, std::uint32_t train, std::uint32_t test,
                 std::uint64_t seed = 1);

}  // namespace examples::testing
