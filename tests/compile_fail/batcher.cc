// Mistakes in the function that a Batcher calls.
#include <vector>

#include "sinew/rpc/batcher.h"

// The function of one call.
// error: Sinew: the function of a Batcher<In, Out> takes the inputs of a batch as std::vector<In>
sinew::Batcher<int, double> other_inputs([](int input) { return std::vector<double>(input); });

// One output for a whole batch.
// error: Sinew: the function of a Batcher<In, Out> returns the outputs of a batch as
// std::vector<Out>
sinew::Batcher<int, double> other_outputs([](const std::vector<int>&) { return 1.0; });
