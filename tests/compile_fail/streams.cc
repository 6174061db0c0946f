// Mistakes with streams. Each has a namespace of its own.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sinew/sinew.h"

namespace not_the_last {
double sum(sinew::Stream<double> numbers, double scale);
}
SINEW_METHOD(not_the_last::sum);

namespace by_reference {
double sum(const sinew::Stream<double>& numbers);
}
SINEW_METHOD(by_reference::sum);

namespace several {
double sum(std::vector<sinew::Stream<double>> numbers);
}
SINEW_METHOD(several::sum);

namespace result_in_a_container {
std::map<std::string, sinew::Stream<double>> sums();
}
SINEW_METHOD(result_in_a_container::sums);

namespace in_a_struct {
struct Numbers {
  sinew::Stream<double> numbers;
};
double sum(Numbers numbers);
}  // namespace in_a_struct
SINEW_STRUCT(in_a_struct::Numbers, numbers);
SINEW_METHOD(in_a_struct::sum);

namespace item_that_cannot_travel {
struct Point {
  double x = 0;
};
}  // namespace item_that_cannot_travel

void use(const sinew::Peer& peer) {
  auto [writer, numbers] = sinew::make_stream<double>();
  // error: Sinew: this method takes a Stream that is not its last parameter
  peer.call<&not_the_last::sum>(std::move(numbers), 2.0);

  // error: Sinew: this method takes a Stream by reference, but a stream has one reader
  peer.call<&by_reference::sum>(std::move(numbers));

  // error: Sinew: a parameter of this method has a Stream in it, which is no value
  peer.call<&several::sum>(std::vector<sinew::Stream<double>>());

  // error: Sinew: the result of this method has a Stream in it, which is no value
  peer.call<&result_in_a_container::sums>();

  // error: Sinew: a field of this struct is a Stream, which is no value
  peer.call<&in_a_struct::sum>(in_a_struct::Numbers());

  // error: Sinew: the items of this Stream have a type that cannot travel
  sinew::make_stream<item_that_cannot_travel::Point>();
}

// error: Sinew: the items of this Stream are streams, or have one in them
sinew::Stream<sinew::Stream<double>> stream_of_streams;
