#pragma once

#include <string>
#include <vector>

namespace examples {

/// A picture of one or several lines over a common x axis, as SVG.
struct LineChart {
  struct Point {
    double x = 0;
    double y = 0;
  };
  struct Line {
    std::string label;
    std::string color;
    double width = 2;
    /// In the order of x.
    std::vector<Point> points;
  };
  /// A height that is marked across the whole picture.
  struct Mark {
    std::string label;
    std::string color;
    double y = 0;
  };

  /// Stands above the picture.
  std::string title;
  std::string x_label;
  std::string y_label;
  /// The x axis begins here, or where the first point is if that is further left, and is at least
  /// that long.
  double first_x = 0;
  double least_length = 1;
  /// The distance of two labels of the x axis is at least this.
  double least_x_tick = 0;
  /// Of the y axis, which has 0 wherever the lines are; a logarithmic one has not.
  enum class Scale { kLinear, kLogarithmic };
  Scale y_scale = Scale::kLinear;
  /// The first one lies behind the others.
  std::vector<Line> lines;
  std::vector<Mark> marks;
};

/// The lines, with each of their points, axes, labels, and a legend. What no axis has a place for
/// is left out: points and marks that are not finite, and on a logarithmic axis those that are not
/// positive.
std::string to_svg(const LineChart& chart);

}  // namespace examples
