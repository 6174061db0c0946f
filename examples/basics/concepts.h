#pragma once

#include <string>

#include "sinew/groups/process_group.h"

/// What PyTorch's tutorial "Writing Distributed Applications" shows, a file for each concept. All
/// ranks call the same function; each prints what it has then.
namespace basics {

/// Rank 0 sends a number to rank 1, which waits for it. (blocking.cc)
void blocking(const sinew::ProcessGroup& group);
/// The same, but both go on while it is under way. (non_blocking.cc)
void non_blocking(const sinew::ProcessGroup& group);
/// Each operation that all ranks of a group take part in. (collectives.cc)
void collectives(const sinew::ProcessGroup& group);
/// A group of some ranks. (subgroup.cc)
void subgroup(const sinew::ProcessGroup& group);
/// Three ways to meet: the environment, rank 0's address, a file. Without a group to begin with.
/// (init_methods.cc)
void init_methods(int port, const std::string& file);
/// The ring of ring_all_reduce.h beside all_reduce: what both give, and how long they take for a
/// tensor of `bytes`. Throws std::runtime_error when the sums differ. (ring.cc)
void ring(const sinew::ProcessGroup& group, long long bytes);
/// What a failure of a spawned process looks like to the one that started it. Not for ranks: it
/// starts `nproc` itself. (spawn_failure.cc)
void spawn_failure(int nproc);

/// Writes one line; lines of several processes don't mix.
void print_line(const std::string& line);
/// As Python prints `tensor[0]` for one number, and otherwise a tensor of one dimension.
std::string text_of(const at::Tensor& tensor);

}  // namespace basics
