#pragma once

#include <string>
#include <vector>

namespace ps_rnn {

/// How a training went, with the epochs as a clock.
struct LossCurve {
  struct Point {
    /// 1.5: in the middle of the second epoch.
    double epoch = 0;
    /// Mean cross entropy per word since the last point.
    double train_loss = 0;
    /// At the end of an epoch, else 0.
    double valid_loss = 0;
  };
  /// Stands above the picture.
  std::string title;
  /// That of the model that knows frequencies only; drawn as a line.
  double unigram_perplexity = 0;
  std::vector<Point> points;
};

/// `epoch,train_loss,valid_loss,valid_perplexity`; the last two are empty within an epoch.
std::string to_csv(const LossCurve& curve);
/// What a file says that to_csv() has written, up to the end of epoch `last`. Throws
/// std::runtime_error that names the line which is none.
std::vector<LossCurve::Point> points_from_csv(const std::string& csv, double last);
/// A picture of the perplexities.
std::string to_svg(const LossCurve& curve);

}  // namespace ps_rnn
