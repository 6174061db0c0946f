@0xc54e8b7a1d2f9063;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("sinew::bench::schema");

# Takes and gives the bytes of a tensor.
interface Blobs {
  store @0 (data :Data) -> (bytes :UInt64);
  # Makes what load() returns.
  keep @1 (bytes :UInt64) -> ();
  load @2 () -> (data :Data);
}
