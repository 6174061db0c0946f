#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sinew/rpc/wire/value_reader.h"
#include "sinew/rpc/wire/value_writer.h"

namespace sinew::internal {

/// A list of values in a file in memory, for another process of this program on this host. It is
/// in a form of its own, which no other program reads. Not thread-safe.
class SpawnMessageWriter {
 public:
  SpawnMessageWriter();
  SpawnMessageWriter(SpawnMessageWriter&&) noexcept;
  ~SpawnMessageWriter();

  /// The next value. Write exactly one to it. Tensors must be in host memory.
  ValueWriter next();
  /// Writes all behind the first `offset` bytes of a file.
  absl::Status write(int descriptor, std::size_t offset) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class SpawnMessageReader {
 public:
  /// kDataLoss if no message stands there.
  static absl::StatusOr<SpawnMessageReader> open(int descriptor, std::size_t offset);
  SpawnMessageReader(SpawnMessageReader&&) noexcept;
  ~SpawnMessageReader();

  std::size_t size() const;
  /// Counts from 0. Beyond the end: RpcError kInvalidArgument. `noun` and `number` name the value
  /// in texts of errors.
  ValueReader value(std::size_t index, const char* noun, std::size_t number);

 private:
  struct State;
  explicit SpawnMessageReader(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace sinew::internal
