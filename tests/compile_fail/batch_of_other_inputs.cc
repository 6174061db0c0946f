#include <vector>

#include "sinew/rpc/batcher.h"

// The function of one call.
sinew::Batcher<int, double> batcher([](int input) { return std::vector<double>{1.0 * input}; });
