#include "sinew/tests/autograd/pass/pass_model.h"

namespace sinew::internal::sim {

const std::vector<PassWorld>& pass_worlds() {
  // 0 calls 1.
  static const PassShape& pair = *new PassShape{0, {{0, 1, {2}}, {1, 0, {0}}}};
  // 0 calls 1, which calls 2, which returns by way of 1.
  static const PassShape& chain =
      *new PassShape{0, {{0, 1, {2}}, {1, 2, {3}}, {2, 1, {4}}, {1, 0, {0}}}};
  // 0 calls 1 twice, the second time with what came back.
  static const PassShape& ping_pong =
      *new PassShape{0, {{0, 1, {2}}, {1, 0, {3}}, {0, 1, {4}}, {1, 0, {0}}}};
  // 0 calls 1 twice, with nothing between the calls.
  static const PassShape& two_calls =
      *new PassShape{0, {{0, 1, {2}}, {1, 0, {0}}, {0, 1, {4}}, {1, 0, {0}}}};
  // 0 calls 1 and 2, and sends what came from both to 3.
  static const PassShape& diamond = *new PassShape{
      0, {{0, 1, {3}}, {0, 2, {4}}, {1, 0, {5}}, {2, 0, {5}}, {0, 3, {6}}, {3, 0, {0}}}};
  // 0 calls 1, which calls 2, and later 1 again, whose second result needs no third worker.
  static const PassShape& aside = *new PassShape{
      0, {{0, 1, {2}}, {1, 0, {5}}, {1, 2, {4}}, {2, 1, {2}}, {0, 1, {6}}, {1, 0, {0}}}};
  // Messages go round.
  static const PassShape& ring =
      *new PassShape{0, {{0, 1, {2}}, {1, 2, {3}}, {2, 3, {4}}, {3, 0, {0}}}};
  // 0 sends to 1 and 2, and 1 to 2.
  static const PassShape& corner = *new PassShape{0, {{0, 1, {2}}, {1, 2, {3}}, {2, 0, {0}}}};
  // 0 calls 1 and 2, and 1 calls 2.
  static const PassShape& triangle = *new PassShape{
      0, {{0, 1, {2}}, {1, 2, {3}}, {2, 1, {4}}, {1, 0, {0}}, {0, 2, {6}}, {2, 0, {0}}}};
  // 3 calls 1.
  static const PassShape& other = *new PassShape{2, {{2, 1, {2}}, {1, 2, {0}}}};
  static const auto& worlds = *new std::vector<PassWorld>{
      {"pair, twice", 2, {pair, pair}, 1, 1},
      {"pair, lost", 2, {pair, pair}, 0, 1, /*mortal=*/1},
      {"pair, the initiator is lost", 2, {pair}, 1, 0, /*mortal=*/0},
      {"pair, reduces", 2, {pair, pair}, 1, 0, -1, /*reducer=*/1},
      {"chain", 3, {chain}, 1, 0, -1, -1, /*is_coarse=*/true},
      {"chain, no time", 3, {chain}, 0, 1, -1, -1, /*is_coarse=*/true},
      {"chain, lost", 3, {chain}, 0, 0, /*mortal=*/2},
      {"chain, reduces", 3, {chain}, 1, 0, -1, /*reducer=*/1, /*is_coarse=*/true},
      {"there and back, twice", 2, {ping_pong, ping_pong}, 1, 0},
      {"there and back, no time", 2, {ping_pong}, 1, 1},
      {"there and back, reduces", 2, {ping_pong}, 1, 0, -1, /*reducer=*/1},
      {"diamond", 4, {diamond}, 0, 0},
      {"diamond, throws", 4, {diamond}, 1, 0, -1, -1, /*is_coarse=*/true},
      {"aside", 3, {aside}, 0, 0},
      {"ring", 4, {ring}, 0, 0},
      {"another worker's pass", 3, {pair, other}, 1, 0},
      {"triangle", 3, {triangle}, 0, 0, -1, -1, /*is_coarse=*/true},
      {"corner", 3, {corner}, 1, 0, -1, -1, /*is_coarse=*/true},
      {"chain, twice", 3, {chain, chain}, 1, 0, -1, -1, /*is_coarse=*/true},
      {"two calls", 2, {two_calls, two_calls}, 1, 0},
      {"aside, throws", 3, {aside}, 1, 0, -1, -1, /*is_coarse=*/true},
      {"ring, throws", 4, {ring}, 1, 0, -1, -1, /*is_coarse=*/true},
  };
  return worlds;
}

}  // namespace sinew::internal::sim
