#pragma once

#include <chrono>
#include <string>

namespace examples {

/// One line at the bottom of a terminal that shows how far something has come. Does nothing where
/// stderr is no terminal. Not thread-safe.
class ProgressBar {
 public:
  ProgressBar();
  /// Clears the line.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// `fraction` in 0 to 1. Redraws ten times a second at most.
  void show(double fraction, const std::string& label);
  /// To be called before other output.
  void clear();

  /// `[########............] label`, with `width` places between the brackets.
  static std::string draw(double fraction, int width, const std::string& label);

 private:
  const bool enabled_;
  bool visible_ = false;
  std::chrono::steady_clock::time_point next_redraw_;
};

}  // namespace examples
