#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "sinew/launch/spawn_options.h"
#include "sinew/rpc/method.h"
#include "sinew/rpc/wire/codec.h"

/// What the tests have spawned processes do.
namespace sinew::testing {

struct Settings {
  std::string name;
  double rate = 0;
  std::vector<int> widths;
};

/// Writes a file of its job's token into the folder.
void write_token(int rank, const std::string& folder);
/// Writes a file of that process's place and descriptors into the folder.
void write_place(int rank, const std::string& folder);
/// Throw std::logic_error unless these are what the test has sent.
void check_arguments(int rank, const Settings& settings, std::string bytes, std::uint64_t large,
                     const std::map<std::string, std::vector<double>>& map,
                     std::optional<int> nothing, bool yes);
void check_tensors(int rank, at::Tensor large, const std::vector<at::Tensor>& others);

void do_nothing(int rank);
void wait_for_ever(int rank);
void throw_runtime_error(int rank, const std::string& text);
void throw_rpc_error(int rank);
void throw_number(int rank);
void exit_with(int rank, int code);
void raise_signal(int rank, int signal);
void call_terminate(int rank);
/// One throws, the others wait for ever.
void one_throws(int rank, int which);
/// Ignores SIGTERM and says so by a file in the folder; one throws once all others have.
void ignore_and_one_throws(int rank, int nprocs, const std::string& folder);
/// Until somebody opens the named pipe for writing.
void wait_for_pipe(int rank, const std::string& pipe);
/// Says by a file that it is there, and waits for ever.
void announce_and_wait(int rank, const std::string& folder);
/// Spawns two processes that announce themselves and wait.
void spawn_announcers(int rank, const std::string& folder);
void spawn_nothing(int rank);
/// Writes lines piece by piece, and a line without an end.
void write_lines(int rank, int count);
/// Calls each other worker of a job that is found by env://.
void call_all_others(int rank, int nprocs);

int twice(int value);
at::Tensor doubled(const at::Tensor& value);

/// What the program does with that argument, rather than tests; the exit status.
int drive(const std::string& what, const std::string& folder);

}  // namespace sinew::testing

SINEW_METHOD(sinew::testing::twice);
SINEW_METHOD(sinew::testing::doubled);

SINEW_STRUCT(sinew::testing::Settings, name, rate, widths);
