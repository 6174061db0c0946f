#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sinew/rpc/base/future.h"
#include "sinew/rpc/base/ids.h"
#include "sinew/rpc/base/threads/executor.h"
#include "sinew/rpc/membership/contact.h"
#include "sinew/rpc/transport/inproc/inproc_network.h"

namespace sinew::internal {

/// Where a job's registrar is found. There is one seat, so there is one registrar.
class RegistrarSeat {
 public:
  struct Found {
    /// This worker has it.
    bool is_own = false;
    /// No worker has had it before.
    bool is_new = false;
    /// Where its holder may be asked.
    std::vector<Contact> others;
  };
  virtual ~RegistrarSeat() = default;

  /// `may_take`: this worker may be the registrar. One call at a time.
  virtual Future<Found> look(bool may_take) = 0;
  /// Whether this worker, which is the registrar, has it still. One call at a time.
  virtual Future<bool> holds() = 0;
  /// This worker is the registrar no more.
  virtual void give_back() = 0;
};

/// Tells the addresses that one stands for at present; never blocks.
using ResolveAddress = std::function<Future<std::vector<Contact>>(const std::string& address)>;

/// Tells which worker answers at an address; nothing if none does. Never blocks.
using AskAddress = std::function<void(const Contact& contact,
                                      std::function<void(Incarnation answerer)> on_answer)>;

/// A worker that listens at the address of a registrar.
struct OwnAddress {
  Incarnation self;
  AskAddress ask;
  /// So often it looks whether the address leads to it still.
  std::chrono::nanoseconds period;
};

/// Addresses of one registrar: the process that answers there has the seat. `own`: this worker
/// does, until another one answers there and it does not. `resolve` may be null.
std::unique_ptr<RegistrarSeat> make_address_seat(std::vector<std::string> addresses,
                                                 std::optional<OwnAddress> own,
                                                 ResolveAddress resolve);

/// A seat of the network of one process; its holder must give it back. `address` is this worker's.
std::unique_ptr<RegistrarSeat> make_process_seat(std::shared_ptr<InprocNetwork> network,
                                                 std::string name, std::string address);

/// The lock on a file, which the kernel releases when its holder's process ends; the file says
/// where the holder is. See GuardedFolder for the files that are taken. `address` and `name` are
/// this worker's; file operations run on `executor`.
std::unique_ptr<RegistrarSeat> make_file_seat(std::string path, std::string address,
                                              std::string name, std::shared_ptr<Executor> executor);

}  // namespace sinew::internal
