"""tools/layers finds what it is there to find."""

import sys
import unittest

sys.dont_write_bytecode = True
import tree  # noqa: E402

LAYERS = sys.argv.pop(1)


def check(files: dict) -> "tuple[int, str]":
    texts = {name: "".join(f"#include {include}\n" for include in includes) for name, includes in files.items()}
    return tree.check(LAYERS, texts)


class LayersTest(unittest.TestCase):
    def assert_refused(self, files: dict, text: str) -> None:
        status, output = check(files)
        self.assertEqual(status, 1, output)
        self.assertIn(text, output)
        self.assertIn("1 include that must not be", output)

    def assert_allowed(self, files: dict) -> None:
        status, output = check(files)
        self.assertEqual(status, 0, output)

    def test_downward(self) -> None:
        self.assert_allowed(
            {
                "rpc/base/ids.h": ["<string>", '"absl/status/status.h"'],
                "rpc/wire/codec.h": ['"sinew/rpc/base/ids.h"', '"ATen/core/Tensor.h"'],
                "rpc/wire/codec.cc": ['"sinew/rpc/wire/codec.h"', '"sinew/value.pb.h"'],
                "rpc/transport/grpc/connection/channel.cc": ['"grpcpp/channel.h"', '"sinew/rpc.grpc.pb.h"'],
                "rref/rref.h": ['"sinew/rpc/wire/codec.h"', '"sinew/rref/internal/handle.h"'],
                "rref/internal/handle.h": [],
                "autograd/internal/node.cc": ['"torch/csrc/autograd/function.h"'],
                "sinew.h": ['"sinew/rref/rref.h"'],
                "examples/a.cc": ['"sinew/sinew.h"', '"torch/torch.h"'],
                "tests/a_test.cc": ['"sinew/rref/internal/handle.h"', '"grpcpp/grpcpp.h"'],
            }
        )

    def test_upward(self) -> None:
        self.assert_refused(
            {"rpc/base/ids.h": ['"sinew/rpc/wire/codec.h"'], "rpc/wire/codec.h": []},
            "rpc/base/ids.h:1: includes sinew/rpc/wire/codec.h: rpc/base may use nothing",
        )

    def test_rooms_of_rpc(self) -> None:
        self.assert_allowed(
            {
                "rpc/peer.h": [],
                "rpc/membership/directory.h": [],
                "rpc/calls/worker_services.h": ['"sinew/rpc/membership/directory.h"', '"sinew/rpc/peer.h"'],
                "rpc/device/layer/device_layer.h": ['"sinew/rpc/calls/worker_services.h"'],
                "rpc/worker/worker_core.h": ['"sinew/rpc/device/layer/device_layer.h"'],
                "rpc/worker.cc": ['"sinew/rpc/worker/worker_core.h"'],
            }
        )

    def test_upward_within_rpc(self) -> None:
        cases = {
            "rpc/device/device_runtime.h": "rpc/wire/codec.h",
            "rpc/planes/pull_plane.h": "rpc/transport/transport.h",
            "rpc/transport/transport.h": "rpc/link/link.h",
            "rpc/link/link.cc": "rpc/membership/directory.h",
            "rpc/membership/gather.cc": "rpc/calls/call_link.h",
            "rpc/membership/control_plane.h": "rpc/peer.h",
            "rpc/calls/call_link.cc": "rpc/device/layer/device_layer.h",
            "rpc/calls/call_builder.cc": "rpc/worker/worker_core.h",
            "rpc/device/layer/device_layer.cc": "rpc/worker/worker_parts.h",
            "rpc/worker.h": "rpc/worker/worker_core.h",
            "rref/rref.cc": "rpc/worker/worker_core.h",
            "autograd/context.cc": "rpc/worker/worker_core.h",
            "optim/optimizer.cc": "rpc/worker/worker_core.h",
        }
        for path, included in cases.items():
            with self.subTest(path):
                files = {path: [f'"sinew/{included}"'], included: []}
                self.assert_refused(files, f"{path}:1: includes sinew/{included}")

    def test_sideways(self) -> None:
        files = {"rref/rref.h": ["<memory>", '"sinew/autograd/context.h"'], "autograd/context.h": []}
        self.assert_refused(files, "rref/rref.h:2:")

    def test_above_all(self) -> None:
        self.assert_refused(
            {"rpc/peer.cc": ['"sinew/tests/support/clock.h"'], "tests/support/clock.h": []}, "stands above it"
        )

    def test_testing_is_for_tests(self) -> None:
        self.assert_refused(
            {"rpc/peer.cc": ['"sinew/testing/cluster.h"'], "testing/cluster.h": []}, "stands above it"
        )
        self.assert_allowed({"testing/cluster.cc": ['"sinew/rpc/worker/core.h"'], "rpc/worker/core.h": []})
        self.assert_refused(
            {"testing/cluster.h": ['"sinew/rpc/worker/core.h"'], "rpc/worker/core.h": []}, "of its own folder only"
        )

    def test_version_is_for_all(self) -> None:
        self.assert_allowed({"launch/run/a.cc": ['"sinew/version.h"'], "version.h": []})
        self.assert_refused({"rref/a.h": ['"sinew/other.h"'], "other.h": []}, "stands above it")

    def test_umbrella(self) -> None:
        self.assert_refused({"rref/a.cc": ['"sinew/sinew.h"'], "sinew.h": []}, "stands above it")

    def test_grpc(self) -> None:
        self.assert_refused({"rpc/peer.cc": ["<grpcpp/grpcpp.h>"]}, "gRPC is for")

    def test_generated_services(self) -> None:
        self.assert_refused({"rpc/peer.cc": ['"sinew/rpc.grpc.pb.h"']}, "gRPC is for")

    def test_autograd_of_torch(self) -> None:
        self.assert_refused({"optim/a.cc": ['"torch/csrc/autograd/engine.h"']}, "autograd/internal/")

    def test_all_of_torch(self) -> None:
        self.assert_refused({"rpc/wire/codec.h": ["<torch/torch.h>"]}, "10 s")

    def test_generated_code_in_a_public_header(self) -> None:
        self.assert_refused({"rpc/peer.h": ['"sinew/rpc.pb.h"']}, "no .pb.h in a public header")

    def test_generated_code_through_an_internal_header(self) -> None:
        self.assert_refused(
            {"rpc/peer.h": ['"sinew/rpc/internal/a.h"'], "rpc/internal/a.h": ['"sinew/rpc.pb.h"']},
            "rpc/internal/a.h <- rpc/peer.h",
        )

    def test_internal_header_of_another_folder(self) -> None:
        files = {"rref/rref.h": ['"sinew/rpc/internal/core.h"'], "rpc/internal/core.h": []}
        self.assert_refused(files, "of its own folder only")

    def test_internal_header_in_an_example(self) -> None:
        files = {"examples/a.cc": ['"sinew/rpc/internal/core.h"'], "rpc/internal/core.h": []}
        self.assert_refused(files, "examples use public headers only")

    def test_relative(self) -> None:
        self.assert_refused({"rpc/peer.cc": ['"../rref/rref.h"'], "rref/rref.h": []}, "from the root")

    def test_without_prefix(self) -> None:
        self.assert_refused({"rpc/peer.cc": ['"rpc/peer.h"'], "rpc/peer.h": []}, '"sinew/rpc/peer.h"')

    def test_missing(self) -> None:
        self.assert_refused({"rpc/peer.cc": ['"sinew/rpc/per.h"']}, "there is no such file")

    def test_nothing_to_check_is_an_error(self) -> None:
        self.assertEqual(check({"README": []})[0], 2)


if __name__ == "__main__":
    unittest.main()
