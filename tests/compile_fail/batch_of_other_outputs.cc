#include <vector>

#include "sinew/rpc/batcher.h"

// One output for a whole batch.
sinew::Batcher<int, double> batcher([](const std::vector<int>&) { return 1.0; });
