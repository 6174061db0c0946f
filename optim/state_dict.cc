#include "sinew/optim/state_dict.h"

#include <torch/csrc/jit/serialization/export.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/csrc/jit/serialization/unpickler.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <fstream>
#include <iterator>
#include <sstream>
#include <tuple>
#include <vector>

#include "ATen/core/grad_mode.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sinew/optim/internal/durable_file.h"
#include "sinew/optim/internal/optim_manager.h"
#include "sinew/optim/internal/python_pickle.h"
#include "sinew/rpc/base/error.h"
#include "sinew/rpc/calls/type_text.h"
#include "sinew/rpc/calls/worker_services.h"

namespace sinew {
namespace internal {
namespace {

/// Runs `work` when no optimizer of the worker steps one of the tensors.
template <class Result, class Work>
Future<Result> between_steps(const Worker& worker, const optim::StateDict& tensors, Work work) {
  std::vector<const void*> keys;
  for (const auto& [name, tensor] : tensors) keys.push_back(tensor.unsafeGetTensorImpl());
  Promise<Result> promise;
  Future<Result> future = promise.future();
  OptimManager::of(*WorkerAccess::services(worker))
      ->gate()
      ->run(std::move(keys), [promise, work = std::move(work)] {
        try {
          const at::AutoGradMode no_grad(false);
          if constexpr (std::is_void_v<Result>) {
            work();
            promise.set_value();
          } else {
            promise.set_value(work());
          }
        } catch (...) {
          promise.set_error(std::current_exception());
        }
      });
  return future;
}

void check_fits(const optim::StateDict& tensors, const optim::StateDict& values) {
  std::vector<std::string> faults;
  for (const auto& [name, tensor] : tensors) {
    const auto found = values.find(name);
    if (found == values.end()) {
      faults.push_back(absl::StrFormat("'%s' is missing", name));
    } else if (!found->second.defined() || found->second.sizes() != tensor.sizes()) {
      faults.push_back(absl::StrFormat(
          "'%s' has sizes [%s], and [%s] in the module", name,
          found->second.defined() ? absl::StrJoin(found->second.sizes(), ", ") : "undefined",
          absl::StrJoin(tensor.sizes(), ", ")));
    }
  }
  for (const auto& [name, value] : values) {
    if (tensors.count(name) == 0) faults.push_back(absl::StrFormat("'%s' is unknown", name));
  }
  if (faults.empty()) return;
  throw RpcError(ErrorCode::kInvalidArgument,
                 absl::StrCat("the state does not fit the module: ", absl::StrJoin(faults, ", ")));
}

}  // namespace

Future<optim::StateDict> copy_tensors(const Worker& worker, const optim::StateDict& tensors) {
  return between_steps<optim::StateDict>(worker, tensors, [tensors] {
    optim::StateDict copies;
    for (const auto& [name, tensor] : tensors) {
      copies.emplace(name, tensor.detach().to(at::kCPU, /*non_blocking=*/false, /*copy=*/true));
    }
    return copies;
  });
}

Future<void> overwrite_tensors(const Worker& worker, const optim::StateDict& tensors,
                               const optim::StateDict& values) {
  check_fits(tensors, values);
  return between_steps<void>(worker, tensors, [tensors, values] {
    for (const auto& [name, tensor] : tensors) {
      // As optimizers do: no change in place for autograd.
      tensor.variable_data().copy_(values.at(name));
    }
  });
}

void throw_has_no_names(const std::type_info& module) {
  throw RpcError(ErrorCode::kUnimplemented,
                 absl::StrFormat("%s has no named_parameters() and named_buffers(), as a "
                                 "torch::nn::Module has, so it has no state by names",
                                 type_text(module)));
}

}  // namespace internal

// ---- Files.

namespace optim {
namespace {

[[noreturn]] void throw_unreadable(const std::string& path, std::string_view why) {
  throw RpcError(
      ErrorCode::kDataLoss,
      absl::StrFormat("'%s' is no dictionary of tensors that LibTorch reads: %s (in Python, "
                      "write it by torch.save(module.state_dict(), path))",
                      path, why));
}

std::vector<char> read_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) internal::throw_file_error("open", path, errno);
  std::vector<char> bytes{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (stream.bad()) internal::throw_file_error("read", path, EIO);
  return bytes;
}

/// As torch::pickle_save() writes it, but without the C++ types in addition to the dictionary,
/// which weights_only does not take.
std::string pickled(const c10::IValue& value) {
  std::string program;
  torch::jit::Pickler pickler(
      [&program](const char* bytes, std::size_t size) { program.append(bytes, size); },
      /*tensor_table=*/nullptr, /*type_renamer=*/nullptr, /*memoized_class_types=*/nullptr,
      /*get_tensor_id=*/nullptr, /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(value);
  pickler.stop();
  std::string file;
  caffe2::serialize::PyTorchStreamWriter writer([&file](const void* bytes, std::size_t size) {
    file.append(static_cast<const char*>(bytes), size);
    return size;
  });
  torch::jit::writeArchiveAndTensors("data", program.data(), program.size(), pickler.tensorData(),
                                     writer);
  writer.writeEndOfFile();
  return file;
}

/// As torch::pickle_load() does it, which takes no OrderedDict.
c10::IValue unpickle(const std::vector<char>& file) {
  std::istringstream stream(std::string(file.begin(), file.end()));
  caffe2::serialize::PyTorchStreamReader reader(&stream);
  const auto [bytes, size] = reader.getRecord("data.pkl");
  const std::string program =
      internal::with_plain_dictionary(std::string(static_cast<const char*>(bytes.get()), size));
  std::size_t read = 0;
  torch::jit::Unpickler unpickler(
      [&program, &read](char* to, std::size_t most) {
        const std::size_t count = std::min(most, program.size() - read);
        std::copy_n(program.data() + read, count, to);
        read += count;
        return count;
      },
      /*type_resolver=*/nullptr, /*obj_loader=*/nullptr,
      [&reader](const std::string& name) { return std::get<0>(reader.getRecord("data/" + name)); },
      /*device=*/c10::nullopt);
  unpickler.set_version(reader.version());
  return unpickler.parse_ivalue();
}

c10::IValue unpickle(const std::string& path) {
  const std::vector<char> file = read_file(path);
  try {
    return unpickle(file);
  } catch (const c10::Error& error) {
    throw_unreadable(path, error.what_without_backtrace());
  } catch (const std::out_of_range& error) {
    throw_unreadable(path, error.what());
  }
}

}  // namespace

void save_state_dict(const StateDict& state, const std::string& path) {
  c10::Dict<std::string, at::Tensor> named;
  for (const auto& [name, tensor] : state) {
    if (!tensor.defined()) {
      throw RpcError(ErrorCode::kInvalidArgument,
                     absl::StrFormat("tensor '%s' of the state is undefined", name));
    }
    // Contiguous: a view would be saved with all that it is a view of.
    named.insert(name, tensor.detach().cpu().clone(at::MemoryFormat::Contiguous));
  }
  internal::DurableFile file(path, pickled(named));
  file.publish();
}

StateDict load_state_dict(const std::string& path) {
  const c10::IValue read = unpickle(path);
  if (!read.isGenericDict()) throw_unreadable(path, "it is no dictionary");
  StateDict state;
  for (const auto& entry : read.toGenericDict()) {
    if (!entry.key().isString() || !entry.value().isTensor()) {
      throw_unreadable(path, "an entry of its dictionary is no tensor with a name");
    }
    state.emplace(entry.key().toStringRef(), entry.value().toTensor().cpu());
  }
  return state;
}

}  // namespace optim
}  // namespace sinew
