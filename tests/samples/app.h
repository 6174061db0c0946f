#pragma once

/// The program that the samples in the comments of headers are part of: samples.py. Nothing of it
/// is defined.

#include <cstdint>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "sinew/sinew.h"

namespace app {

struct Settings {
  std::int64_t seed = 0;
};
struct Point {
  double x = 0;
};
class Fraction {
 public:
  Fraction(std::int64_t numerator, std::int64_t denominator);
  std::int64_t numerator() const;
  std::int64_t denominator() const;
};

double f(double x);
double figure(const std::string& name);
double mean(const at::Tensor& input);
at::Tensor scale(const at::Tensor& input, double factor);
at::Tensor layer(const at::Tensor& input);
std::vector<std::string> search(const std::string& query);
void push(const at::Tensor& row);
double score(const at::Tensor& row);
void withdraw(const std::string& account, int amount);
int add(int a, int b);
double add(double a, double b);
template <class T>
T sum(const std::vector<T>& numbers);

class Agent {
 public:
  explicit Agent(Settings settings);
  std::int64_t select_action(std::int64_t observer, const at::Tensor& state);
};
class Learner {
 public:
  at::Tensor act(const at::Tensor& state);
};
class Observer {
 public:
  explicit Observer(Settings settings);
  std::int64_t play(const sinew::RRef<Agent>& agent);
};
class Replay {
 public:
  std::int64_t size() const;
};
class Shard {
 public:
  void load(const std::vector<std::string>& files);
};
class Net {
 public:
  explicit Net(std::int64_t width);
  std::vector<sinew::RRef<at::Tensor>> parameters() const;
};

}  // namespace app

SINEW_STRUCT(app::Settings, seed);
SINEW_METHOD(app::f, app::figure, app::mean, app::scale, app::layer, app::search, app::push,
             app::score, app::withdraw);
SINEW_SERVICE(app::Agent, (app::Settings), select_action);
SINEW_SERVICE(app::Learner, (), act);
SINEW_SERVICE(app::Observer, (app::Settings), play);
SINEW_SERVICE(app::Replay, (), size);
SINEW_SERVICE(app::Shard, (), load);
SINEW_SERVICE(app::Net, (std::int64_t), parameters);
