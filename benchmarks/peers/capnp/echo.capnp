@0xd2a1c6f04be57193;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("sinew::bench::schema");

interface Echo {
  noop @0 () -> ();
  make @1 () -> (holder :Holder);
}

# The remote object of the two reference figures.
interface Holder {
  get @0 () -> (value :Int64);
}
