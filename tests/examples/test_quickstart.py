#!/usr/bin/python3
"""Runs the quickstart as two processes, and checks that the README shows its source.

usage: test_quickstart.py SINEW_RUN QUICKSTART SOURCE_TREE [unittest arguments]
"""

from __future__ import annotations

import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
import example_process  # noqa: E402
import ports  # noqa: E402

SINEW_RUN = Path()
PROGRAM = Path()
SOURCE_TREE = Path()


class QuickstartTest(unittest.TestCase):
    def test_two_workers(self) -> None:
        for name, ended in example_process.run_alice_and_bob(PROGRAM, ports.free_port()).items():
            self.assertEqual(ended.status, 0, f"{name}: {ended.stderr}")
            self.assertEqual(ended.stderr, "", name)
            if name == "alice":
                self.check_output(ended.stdout)
            else:
                self.assertEqual(ended.stdout, "")

    def test_says_that_anybody_may_join(self) -> None:
        port = ports.free_port()
        pair = []
        for rank, name in enumerate(("alice", "bob")):
            own = example_process.place(port, rank, 2)
            del own["SINEW_JOB_TOKEN"]
            pair.append(example_process.start([PROGRAM, name], own))
        for name, process in zip(("alice", "bob"), pair):
            said = example_process.finish(process, 60).stderr
            self.assertRegex(said, rf"\A\[sinew {name}\] job 'default' has no token \(SINEW_JOB_TOKEN\): .*\n\Z")

    def test_by_one_command(self) -> None:
        ended = example_process.run_alice_and_bob_together(SINEW_RUN, PROGRAM)
        self.assertEqual((ended.status, ended.stderr), (0, ""))
        self.check_output(ended.stdout)

    def check_output(self, output: str) -> None:
        self.assertEqual(output.split("\n")[:3], [" 0", " 2", " 4"])
        self.assertEqual(output.rstrip().split("\n")[-1], "42")

    def test_the_readme_shows_this_source(self) -> None:
        source = (SOURCE_TREE / "examples/quickstart/quickstart.cc").read_text()
        readme = (SOURCE_TREE / "README.md").read_text()
        self.assertIn(f"```cpp\n{source}```\n", readme)
        self.assertLessEqual(len(source.splitlines()), 32, "it is to be read at a glance")


def main() -> None:
    global SINEW_RUN, PROGRAM, SOURCE_TREE
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    SINEW_RUN, PROGRAM, SOURCE_TREE = (Path(sys.argv.pop(1)).absolute() for _ in range(3))
    unittest.main()


if __name__ == "__main__":
    main()
