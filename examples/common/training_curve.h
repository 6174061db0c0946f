#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace examples {

/// How a training went: some figures that change with time.
struct TrainingCurve {
  struct Point {
    /// By the clock of the curve.
    double at = 0;
    /// One for each of `names`. NaN: not known at this point.
    std::vector<double> values;
  };

  /// Stands above the picture.
  std::string title;
  /// What the time is counted in.
  std::string clock = "epoch";
  /// Of the vertical axis.
  std::string unit;
  /// What the figures are called; six at most are told apart by colour.
  std::vector<std::string> names;
  /// What is to be reached; drawn as a line across the picture.
  std::optional<double> goal;
  std::vector<Point> points;
};

/// The clock and the names as the first line, then a line for each point; what is not known is
/// empty.
std::string to_csv(const TrainingCurve& curve);
/// The points that to_csv() has written, up to `last`. Throws std::runtime_error that names
/// the line which is none, and for other names than those of `curve`.
std::vector<TrainingCurve::Point> points_from_csv(const TrainingCurve& curve,
                                                  const std::string& csv, double last);
/// A picture, with a line for each name.
std::string to_svg(const TrainingCurve& curve);

/// Writes `NAME.csv` and `NAME.svg` into `folder`. Throws as write_file().
void write_curve(const TrainingCurve& curve, const std::filesystem::path& folder,
                 const std::string& name);

}  // namespace examples
