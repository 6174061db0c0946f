#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Functions.h"
#include "ATen/TensorOperators.h"
#include "sinew/rpc/wire/codec_struct.h"
#include "sinew/sinew.h"
#include "sinew/tests/support/cluster.h"
#include "sinew/tests/support/fake_device.h"

/// What the workers of these tests call at each other. Fake devices are named by their index.
namespace devices {

struct Pair {
  at::Tensor first;
  std::map<std::string, at::Tensor> others;
};

inline std::string place(const at::Tensor& tensor) { return tensor.device().str(); }
inline std::vector<std::string> places(const std::vector<at::Tensor>& tensors) {
  std::vector<std::string> result;
  for (const at::Tensor& tensor : tensors) result.push_back(place(tensor));
  return result;
}
inline at::Tensor twice(const at::Tensor& tensor) { return tensor * 2; }
inline at::Tensor add(const at::Tensor& a, const at::Tensor& b) { return a + b; }
inline std::vector<at::Tensor> each_twice(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> results;
  for (const at::Tensor& tensor : tensors) results.push_back(tensor * 2);
  return results;
}
inline at::Tensor to_device(const at::Tensor& tensor, int device) {
  return tensor.to(sinew::testing::fake_device(device));
}
inline at::Tensor to_host(const at::Tensor& tensor) { return tensor.cpu(); }
/// One tensor on each of the devices 0 to count - 1, with the device's number in it.
inline std::vector<at::Tensor> one_on_each(int count, int size) {
  std::vector<at::Tensor> results;
  for (int i = 0; i < count; ++i) {
    results.push_back(at::full({size}, i, at::kFloat).to(sinew::testing::fake_device(i)));
  }
  return results;
}
inline Pair swapped(const Pair& pair) {
  return {pair.others.at("second"), {{"second", pair.first}}};
}
inline int one_more(int number) { return number + 1; }
/// Asks `next` to double a tensor.
inline at::Tensor twice_at(const std::string& next, const at::Tensor& tensor);

}  // namespace devices

SINEW_STRUCT(devices::Pair, first, others);
SINEW_METHOD(devices::place, devices::places, devices::twice, devices::add, devices::each_twice,
             devices::to_device, devices::to_host, devices::one_on_each, devices::swapped,
             devices::one_more, devices::twice_at);

namespace devices {

inline at::Tensor twice_at(const std::string& next, const at::Tensor& tensor) {
  return sinew::current_worker().peer(next).call<&twice>(tensor);
}

inline sinew::MethodTable methods() {
  sinew::MethodTable methods;
  methods.add<&place>()
      .add<&places>()
      .add<&twice>()
      .add<&add>()
      .add<&each_twice>()
      .add<&to_device>()
      .add<&to_host>()
      .add<&one_on_each>()
      .add<&swapped>()
      .add<&one_more>()
      .add<&twice_at>();
  return methods;
}

/// A map between fake devices.
inline sinew::DeviceMap fake_map(std::initializer_list<std::pair<int, int>> pairs) {
  sinew::DeviceMap map;
  for (const auto& [here, there] : pairs) {
    map.map(sinew::testing::fake_device(here), sinew::testing::fake_device(there));
  }
  return map;
}

using sinew::testing::numbers;

}  // namespace devices
