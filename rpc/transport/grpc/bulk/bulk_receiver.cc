#include "sinew/rpc/transport/grpc/bulk/bulk_receiver.h"

#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sinew::internal {
namespace {

// Grants of transfers that are here already wait until they are worth this much: all they do is to
// give the sender its allowance back, the larger part of which it still has. A transfer of which
// something is missing must be granted at once, because its sender may have used up the allowance
// for others whose tickets are not read before this one ends.
constexpr std::size_t kGrantBatchBytes = kUnannouncedBytes / 4;

absl::Status violation(std::uint64_t transfer, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("transfer ", transfer, ": ", what));
}

absl::Status no_memory(std::uint64_t size_bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("no memory for a payload of ", size_bytes, " bytes"));
}

void copy(const absl::Cord& bytes, char* to) {
  for (const absl::string_view piece : bytes.Chunks()) {
    std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
  }
}

}  // namespace

absl::StatusOr<BulkReceiver::Announced> BulkReceiver::announce(Lane lane, PacketFrame frame,
                                                               absl::Status lost) {
  MutexLock lock(mutex_);
  if (closed_) return absl::CancelledError("the connection is down");
  Announced announced;
  Waiting waiting;
  const std::uint64_t number = next_waiting_++;
  waiting.whole.lane = lane;
  waiting.whole.size_bytes = frame.size_bytes();
  waiting.whole.payloads = frame.payloads.size();
  waiting.whole.frame.envelope = std::move(frame.envelope);
  waiting.whole.frame.payloads = std::move(frame.payloads);
  waiting.whole.frame.header = std::move(frame.header);
  if (!lost.ok()) lose(waiting.whole, std::move(lost));
  if (!frame.envelope_ticket.inlined()) {
    absl::Status status = add_ticket_locked(frame.envelope_ticket, number, waiting, -1, announced);
    if (!status.ok()) return fail_locked(std::move(status));
  }
  for (std::size_t i = 0; i < frame.tickets.size(); ++i) {
    if (frame.tickets[i].inlined()) continue;
    absl::Status status = add_ticket_locked(frame.tickets[i], number, waiting,
                                            static_cast<std::ptrdiff_t>(i), announced);
    if (!status.ok()) return fail_locked(std::move(status));
  }
  if (arrived_bytes_ >= kGrantBatchBytes || !announced.granted.empty()) {
    announced.granted.insert(announced.granted.end(), arrived_.begin(), arrived_.end());
    arrived_.clear();
    arrived_bytes_ = 0;
  }
  if (waiting.missing == 0) {
    announced.completed = std::move(waiting.whole);
  } else {
    waiting_.emplace(number, std::move(waiting));
  }
  return announced;
}

absl::Status BulkReceiver::add_ticket_locked(const PayloadTicket& ticket, std::uint64_t number,
                                             Waiting& waiting, std::ptrdiff_t at,
                                             Announced& announced) {
  if (ticket.size_bytes == 0) return violation(ticket.transfer, "announced as empty");
  const auto [entry, is_new] = assemblies_.try_emplace(ticket.transfer);
  Assembly& assembly = entry->second;
  if (is_new) {
    assembly.size_bytes = ticket.size_bytes;
  } else {
    if (assembly.waiting != 0) return violation(ticket.transfer, "announced twice");
    if (ticket.located()) return violation(ticket.transfer, "located, but it came in pieces");
    if (assembly.size_bytes != ticket.size_bytes) {
      return violation(ticket.transfer, "another size than its ticket");
    }
    unannounced_bytes_ -= assembly.received_bytes + kTransferOverheadBytes;
    if (assembly.received_bytes == assembly.size_bytes) {
      place(std::move(assembly.received), at, waiting.whole);
      assemblies_.erase(entry);
      arrived_.push_back(ticket.transfer);
      arrived_bytes_ += ticket.size_bytes + kTransferOverheadBytes;
      return absl::OkStatus();
    }
  }
  assembly.waiting = number;
  assembly.place = at;
  ++waiting.missing;
  if (ticket.located()) {
    assembly.located = true;
    announced.to_fetch.push_back({ticket.transfer, ticket.size_bytes, ticket.plane, ticket.location,
                                  !waiting.whole.lost.ok()});
    return absl::OkStatus();
  }
  announced.granted.push_back(ticket.transfer);
  return absl::OkStatus();
}

absl::StatusOr<BulkReceiver::Assembly*> BulkReceiver::find_assembly_locked(const Chunk& chunk) {
  const auto [entry, is_new] = assemblies_.try_emplace(chunk.transfer);
  Assembly& assembly = entry->second;
  if (is_new) {
    assembly.size_bytes = chunk.size_bytes;
    unannounced_bytes_ += kTransferOverheadBytes;
  }
  if (assembly.located) return violation(chunk.transfer, "a piece of what is being fetched");
  if (assembly.size_bytes != chunk.size_bytes) return violation(chunk.transfer, "its size changes");
  if (chunk.offset != assembly.received_bytes ||
      chunk.data.size() > assembly.size_bytes - assembly.received_bytes) {
    return violation(chunk.transfer, "a piece overlaps or is missing");
  }
  if (assembly.waiting == 0) {
    unannounced_bytes_ += chunk.data.size();
    if (unannounced_bytes_ > kUnannouncedBytes) {
      return violation(chunk.transfer, "too many bytes before the ticket");
    }
  }
  return &assembly;
}

absl::StatusOr<std::vector<BulkReceiver::Completed>> BulkReceiver::receive(
    std::vector<Chunk> chunks) {
  // When a later chunk is wrong, frames that are complete already are dropped.
  std::vector<Completed> completed;
  for (Chunk& chunk : chunks) {
    absl::StatusOr<std::optional<Completed>> one = receive_one(std::move(chunk));
    if (!one.ok()) return one.status();
    if (one->has_value()) completed.push_back(**std::move(one));
  }
  return completed;
}

absl::StatusOr<std::optional<BulkReceiver::Completed>> BulkReceiver::receive_one(Chunk chunk) {
  absl::Cord early;
  std::shared_ptr<ReceiveBlock> block;
  {
    MutexLock lock(mutex_);
    if (closed_) return absl::CancelledError("the connection is down");
    absl::StatusOr<Assembly*> found = find_assembly_locked(chunk);
    if (!found.ok()) return fail_locked(found.status());
    Assembly& assembly = **found;
    block = block_locked(assembly);
    if (block == nullptr) {
      assembly.received_bytes += chunk.data.size();
      is_lost_locked(assembly) ? assembly.received.Clear()
                               : assembly.received.Append(std::move(chunk.data));
      return complete_locked(chunk.transfer);
    }
    early.swap(assembly.received);
  }
  // Without the lock: it takes a while, and no other thread touches the block before it is
  // complete.
  copy(early, block->data());
  copy(chunk.data, block->data() + chunk.offset);
  MutexLock lock(mutex_);
  if (closed_) return absl::CancelledError("the connection is down");
  assemblies_[chunk.transfer].received_bytes += chunk.data.size();
  return complete_locked(chunk.transfer);
}

// Where a piece is to be copied. Null: it is kept as it came, since it is small or without a
// ticket, or it is dropped, since its frame is lost.
std::shared_ptr<ReceiveBlock> BulkReceiver::block_locked(Assembly& assembly) {
  if (assembly.waiting == 0 || assembly.size_bytes < ReceivePool::kMinBytes) return nullptr;
  if (is_lost_locked(assembly)) {
    assembly.block = nullptr;
  } else if (assembly.block == nullptr) {
    try {
      assembly.block = ReceivePool::of_process().allocate(assembly.size_bytes);
    } catch (const std::bad_alloc&) {
      lose(waiting_.find(assembly.waiting)->second.whole, no_memory(assembly.size_bytes));
    }
  }
  return assembly.block;
}

bool BulkReceiver::is_lost_locked(const Assembly& assembly) const {
  return assembly.waiting != 0 && !waiting_.find(assembly.waiting)->second.whole.lost.ok();
}

// Its transfers are read to their end, so that sender and receiver go on agreeing about them.
void BulkReceiver::lose(Completed& whole, absl::Status why) {
  whole.lost = std::move(why);
  whole.frame.envelope.clear();
  whole.frame.payloads.clear();
}

// The frame whose last missing transfer this is, if it is complete.
std::optional<BulkReceiver::Completed> BulkReceiver::complete_locked(std::uint64_t transfer) {
  const auto found = assemblies_.find(transfer);
  Assembly& assembly = found->second;
  if (assembly.waiting == 0 || assembly.received_bytes < assembly.size_bytes) return std::nullopt;
  const auto waiting = waiting_.find(assembly.waiting);
  absl::Cord bytes = std::move(assembly.received);
  if (assembly.block != nullptr) {
    const absl::string_view all(assembly.block->data(), assembly.size_bytes);
    bytes = absl::MakeCordFromExternal(all, [block = std::move(assembly.block)] {});
  }
  place(std::move(bytes), assembly.place, waiting->second.whole);
  assemblies_.erase(found);
  if (--waiting->second.missing > 0) return std::nullopt;
  Completed completed = std::move(waiting->second.whole);
  waiting_.erase(waiting);
  return completed;
}

absl::StatusOr<std::optional<BulkReceiver::Completed>> BulkReceiver::fetched(std::uint64_t transfer,
                                                                             absl::Cord bytes) {
  MutexLock lock(mutex_);
  if (closed_) return absl::CancelledError("the connection is down");
  Assembly& assembly = assemblies_[transfer];
  assembly.received_bytes = assembly.size_bytes;
  assembly.received = std::move(bytes);
  return complete_locked(transfer);
}

absl::StatusOr<std::optional<BulkReceiver::Completed>> BulkReceiver::lost(std::uint64_t transfer) {
  MutexLock lock(mutex_);
  if (closed_) return absl::CancelledError("the connection is down");
  Assembly& assembly = assemblies_[transfer];
  assembly.received_bytes = assembly.size_bytes;
  Completed& whole = waiting_.find(assembly.waiting)->second.whole;
  if (whole.lost.ok()) lose(whole, no_memory(assembly.size_bytes));
  return complete_locked(transfer);
}

bool BulkReceiver::not_fetched(std::uint64_t transfer) {
  MutexLock lock(mutex_);
  if (closed_) return false;
  assemblies_[transfer].located = false;
  return true;
}

void BulkReceiver::place(absl::Cord bytes, std::ptrdiff_t place, Completed& whole) {
  if (!whole.lost.ok()) return;
  if (place >= 0) {
    whole.frame.payloads[static_cast<std::size_t>(place)] = std::move(bytes);
    return;
  }
  try {
    whole.frame.envelope = std::string(bytes);
  } catch (const std::bad_alloc&) {
    lose(whole, no_memory(bytes.size()));
  }
}

absl::Status BulkReceiver::fail_locked(absl::Status status) {
  closed_ = true;
  return status;
}

std::size_t BulkReceiver::unannounced_bytes() const {
  MutexLock lock(mutex_);
  return unannounced_bytes_;
}

void BulkReceiver::clear() {
  absl::flat_hash_map<std::uint64_t, Assembly> assemblies;
  absl::flat_hash_map<std::uint64_t, Waiting> waiting;
  MutexLock lock(mutex_);
  closed_ = true;
  assemblies.swap(assemblies_);
  waiting.swap(waiting_);
  unannounced_bytes_ = 0;
}

}  // namespace sinew::internal
