#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sinew/optim/internal/publication_table.h"
#include "sinew/optim/internal/shared_bytes.h"
#include "sinew/optim/internal/weights_layout.h"
#include "sinew/optim/internal/weights_snapshot.h"
#include "sinew/rpc/base/future.h"
#include "sinew/rpc/method.h"
#include "sinew/rpc/wire/codec.h"
#include "sinew/rref/rref.h"

// What the writer and the readers of a publication say to each other.
namespace sinew::internal {

/// Where the bytes of a version are.
struct WeightsSource {
  RRef<WeightsSnapshot> snapshot;
  SharedPlace place;
};

struct WeightsAsk {
  PublicationTable::Ask ask;
  /// Of what the reader has, if others may take it from there.
  std::optional<WeightsSource> source;
};

/// A version as it is told; `source` is nothing where the reader has the bytes.
struct WeightsOffer {
  VersionLabel version;
  std::uint64_t source_id = PublicationTable::kNobody;
  bool is_shared = false;
  /// By the writer's clock, since 1970.
  std::int64_t published_ns = 0;
  /// How long ago that was when this was said.
  std::int64_t age_ns = 0;
  std::vector<NamedShape> tensors;
  std::optional<WeightsSource> source;
};

/// What readers call at the writer, where it is published under the publication's name. Held by
/// shared_ptr. Thread-safe.
class WeightsWriter {
 public:
  virtual ~WeightsWriter() = default;
  /// Completes when there is a later version, and with nothing after a while: the reader asks
  /// again. Holds no thread.
  virtual Future<std::optional<WeightsOffer>> ask(const WeightsAsk& ask) = 0;
  /// That reader asks no more.
  virtual void leave(std::uint64_t reader) = 0;
};

}  // namespace sinew::internal

SINEW_STRUCT(sinew::internal::VersionLabel, run, number, digest);
SINEW_STRUCT(sinew::internal::PublicationTable::Ask, reader, pod, has, failed);
SINEW_STRUCT(sinew::internal::SharedPlace, process, descriptor, name);
SINEW_STRUCT(sinew::internal::NamedShape, name, type, sizes);
SINEW_STRUCT(sinew::internal::WeightsSource, snapshot, place);
SINEW_STRUCT(sinew::internal::WeightsAsk, ask, source);
SINEW_STRUCT(sinew::internal::WeightsOffer, version, source_id, is_shared, published_ns, age_ns,
             tensors, source);
SINEW_METHOD_AS("sinew.weights.ask", &sinew::internal::WeightsWriter::ask);
SINEW_METHOD_AS("sinew.weights.leave", &sinew::internal::WeightsWriter::leave);
SINEW_METHOD_AS("sinew.weights.read", &sinew::internal::WeightsSnapshot::read);
SINEW_METHOD_AS("sinew.weights.changes", &sinew::internal::WeightsSnapshot::changes);
