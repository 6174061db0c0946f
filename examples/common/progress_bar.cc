#include "sinew/examples/common/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iostream>

namespace examples {
namespace {
constexpr int kBarWidth = 30;
constexpr auto kRedrawInterval = std::chrono::milliseconds(100);
}  // namespace

ProgressBar::ProgressBar() : enabled_(isatty(STDERR_FILENO) == 1) {}
ProgressBar::~ProgressBar() { clear(); }

void ProgressBar::show(double fraction, const std::string& label) {
  if (!enabled_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_redraw_) return;
  next_redraw_ = now + kRedrawInterval;
  visible_ = true;
  std::cerr << "\r" << draw(fraction, kBarWidth, label) << "\x1b[K" << std::flush;
}

void ProgressBar::clear() {
  if (!visible_) return;
  visible_ = false;
  next_redraw_ = {};
  std::cerr << "\r\x1b[K" << std::flush;
}

std::string ProgressBar::draw(double fraction, int width, const std::string& label) {
  const int full = static_cast<int>(std::floor(std::clamp(fraction, 0.0, 1.0) * width));
  return "[" + std::string(static_cast<std::size_t>(full), '#') +
         std::string(static_cast<std::size_t>(width - full), '.') + "] " + label;
}

}  // namespace examples
