#include "options.h"

#include "sinew/examples/common/flags.h"

namespace inference_server {

std::variant<Options, int> parse_options(int argc, const char* const* argv) {
  using examples::add_number;
  using examples::add_whole;
  Options options;
  CLI::App app(
      "A server that answers requests of several clients with one pass of a network, and what that "
      "is worth: throughput and latency against the size of batches. One server, and as many "
      "clients as there are other processes.\n\n  sinew-run --nproc 4 inference_server [FLAGS]",
      "inference_server");
  app.add_option("--batches", options.batches, "Sizes of batches to try, as 1,8,32")
      ->delimiter(',')
      ->check(examples::whole(1, 65'536))
      ->capture_default_str();
  add_number(app, "--max-wait", options.max_wait_ms, 0, 60'000, "0 to 60000",
             "Milliseconds that a request waits for company");
  add_whole(app, "--max-queued", options.max_queued, 1, 1'000'000,
            "Requests that may wait at the server; more are refused");
  add_whole(app, "--in-flight", options.in_flight, 1, 100'000,
            "Requests that each client has under way");
  add_number(app, "--rate", options.rate, 0, 10'000'000, "0 to 10000000",
             "Requests per second of all clients, at random times, whatever the server does; 0: "
             "each client makes its next one when it has an answer");
  add_whole(app, "--requests", options.requests, 1, 100'000'000,
            "Requests of each client for each size");
  add_whole(app, "--width", options.width, 1, 65'536, "Width of a layer");
  add_whole(app, "--layers", options.layers, 1, 1000, "Layers of the network");
  add_whole(app, "--threads", options.threads, 1, 1024, "Threads that compute at the server");
  examples::add_seed(app, options.seed);
  app.add_option("--output", options.output,
                 "Folder for throughput and latency, as .csv and .svg; '' writes none")
      ->capture_default_str();
  const examples::Parsed parsed = examples::parse(app, argc, argv);
  if (!parsed.go_on) return parsed.status;
  for (const std::size_t batch : options.batches) {
    if (batch <= options.max_queued) continue;
    std::cerr << "inference_server: --batches " << batch << " is more than --max-queued "
              << options.max_queued << ": such a batch would never be full\n";
    return examples::kUsageError;
  }
  return options;
}

}  // namespace inference_server
