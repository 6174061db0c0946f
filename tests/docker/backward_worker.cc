// A server or a trainer of the scenario ps_killed_in_backward. A trainer's passes go
// through the server, which holds that of the trainer called "victim" until it may go on, and tells
// all the time what is in its tables. What they wait for are files in a folder that all of them
// see.
//
// usage: backward_worker NAME FOLDER, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; rank 0 is
// the server.

#include <chrono>
#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include "ATen/ATen.h"
#include "sinew/sinew.h"

namespace backward_worker {

at::Tensor doubled(const at::Tensor& tensor);
/// Its backward function waits until the file `release` is there.
at::Tensor doubled_and_held(const at::Tensor& tensor);
/// For references.
at::Tensor copied(const at::Tensor& tensor);

}  // namespace backward_worker

SINEW_METHOD(backward_worker::doubled, backward_worker::doubled_and_held, backward_worker::copied);

namespace backward_worker {
namespace {

using namespace std::chrono_literals;

constexpr auto kPause = 50ms;
constexpr auto kPatience = 300s;

std::filesystem::path& folder() {
  static auto& path = *new std::filesystem::path();
  return path;
}

void say(const std::string& line) { std::cout << line + "\n" << std::flush; }

bool is_there(const std::string& file) { return std::filesystem::exists(folder() / file); }

void wait_for(const std::string& file) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!is_there(file)) {
    if (std::chrono::steady_clock::now() > deadline) {
      throw std::runtime_error("nobody has made the file " + file);
    }
    std::this_thread::sleep_for(kPause);
  }
}

at::Tensor held(const at::Tensor& gradient) {
  say("inside backward");
  wait_for("release");
  return gradient;
}

/// What is in the tables of references and of autograd, and was not there at the start.
std::string tables(const sinew::Worker& worker) {
  std::string text;
  for (const auto& [name, value] : worker.counters()) {
    const std::string_view counter = name;
    const bool is_table = counter.substr(0, 5) == "rref." ||
                          (counter.substr(0, 9) == "autograd." && counter != "autograd.calls");
    if (is_table && value != 0) text += " " + name + "=" + std::to_string(value);
  }
  return text.empty() ? " empty" : text;
}

void serve(const sinew::Worker& worker) {
  while (!is_there("end")) {
    say("tables:" + tables(worker));
    std::this_thread::sleep_for(4 * kPause);
  }
}

void pass(const sinew::Worker& worker, const sinew::Peer& server, bool is_victim) {
  const sinew::autograd::Context context(worker);
  const at::Tensor leaf = at::ones({3}).set_requires_grad(true);
  const at::Tensor result =
      is_victim ? server.call<&doubled_and_held>(leaf) : server.call<&doubled>(leaf);
  sinew::autograd::backward(context, {result.sum()});
  const at::Tensor gradient = sinew::autograd::gradient_of(context, leaf);
  if (!gradient.equal(at::full({3}, 2.0))) throw std::runtime_error("a wrong gradient");
}

void train(const sinew::Worker& worker) {
  const sinew::Peer server = worker.wait_for("server", kPatience).within(kPatience);
  const bool is_victim = worker.name() == "victim";
  const auto reference = server.remote<&copied>(at::ones({3}));
  for (int step = 1; !is_there("rest"); ++step) {
    pass(worker, server, is_victim);
    say("step " + std::to_string(step));
    std::this_thread::sleep_for(kPause);
  }
}

int run(const std::string& name, const std::filesystem::path& where) {
  folder() = where;
  sinew::WorkerOptions options;
  options.name = name;
  options.credentials = sinew::Credentials::insecure_on_any_network();
  options.methods.add<&doubled>().add<&doubled_and_held>().add<&copied>();
  const sinew::Worker worker = sinew::init_rpc(std::move(options));
  if (worker.rank() == 0) {
    serve(worker);
  } else {
    train(worker);
    say("rests");
    wait_for("end");
  }
  worker.shutdown();
  return 0;
}

}  // namespace

at::Tensor doubled(const at::Tensor& tensor) { return tensor * 2; }
at::Tensor doubled_and_held(const at::Tensor& tensor) {
  at::Tensor result = tensor * 2;
  result.register_hook(&held);
  return result;
}
at::Tensor copied(const at::Tensor& tensor) { return tensor.clone(); }

}  // namespace backward_worker

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: backward_worker NAME FOLDER" << std::endl;
    return 2;
  }
  try {
    return backward_worker::run(argv[1], argv[2]);
  } catch (const std::exception& error) {
    std::cerr << "backward_worker: " << error.what() << std::endl;
    return 3;
  }
}
