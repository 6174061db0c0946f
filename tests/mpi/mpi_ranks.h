#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "sinew/groups/internal/backend.h"

/// What the cases of the test program mpi_ranks share. Each rank of an MPI job runs the same case;
/// a check that fails throws, and the job ends with it.
namespace sinew::testing {

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

inline constexpr auto kStart = std::chrono::seconds(60);

void check(bool holds, const std::string& what);
/// Throws unless `run` throws an RpcError whose text contains `part`.
void check_error(const std::function<void()>& run, const std::string& part);
void check_equal(const at::Tensor& tensor, const at::Tensor& expected, const std::string& what);

/// The same at all ranks, so that each can compute what all have: the input of `rank`.
at::Tensor input_of(int rank, at::ScalarType type, at::IntArrayRef sizes);

/// A group of `job_ranks`; of all ranks if there are none.
std::unique_ptr<internal::Backend> make_group(const std::string& name,
                                              std::vector<int> job_ranks = {},
                                              std::chrono::milliseconds timeout = kStart);

/// Waits for the work in the way that most do.
void wait(const WorkPtr& work);

using Cases = std::map<std::string, std::function<void()>>;
/// Of the other sources.
void add_operations(Cases& cases);
void add_ends(Cases& cases);
void add_groups(Cases& cases);

}  // namespace sinew::testing
