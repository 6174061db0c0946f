"""A learner that is killed while its actors play."""

from __future__ import annotations

import re

from lab.hosts import Lab
from lab.program import Program
from scenarios.scenario import LONG_S, PORT, Result, Scenario, Stopwatch, check

UPDATE = r"^Update (\d+): .*weights (\d+)\.(\d+)"
TRUSTED = {"SINEW_EXAMPLES_TRUSTED_NETWORK": "1", "OMP_NUM_THREADS": "1"}
# No return is so good, so the training goes on until it is ended, however fast the machine learns.
ENDLESS = ("--goal", "0", "--updates", "1000000000")


def learner_killed(lab: Lab) -> Result:
    """Actors go on playing, find the next one, and what they see of versions only grows."""
    learner = lab.add_host("learner")
    actors = [lab.add_host("actor1"), lab.add_host("actor2")]
    address = f"tcp://learner:{PORT}"
    rhythm = ("--warm-up", "400", "--evaluate-every", "25", "--checkpoint-every", "25", "--evaluation-episodes", "1")
    command = ["learner", "--init-method", address, "--checkpoint", "checkpoint", *rhythm, *ENDLESS, "--batch", "16"]

    def start_learner() -> Program:
        return learner.start(command, TRUSTED)

    first = start_learner()
    players = [
        host.start(["actor", "--init-method", address, "--name", host.name, "--speed", "0"], TRUSTED) for host in actors
    ]
    # One alone is enough for updates, and the other one would meet only the next learner.
    for player in players:
        player.expect("found the learner", LONG_S)
    versions = [version_of(first.expect(UPDATE, LONG_S)) for _ in range(3)]
    with Stopwatch() as recovery:
        first.kill()
        second = start_learner()
        versions.append(version_of(second.expect(UPDATE, LONG_S)))
    for player in players:
        player.expect("the learner is away", LONG_S)
        player.expect("found the learner", LONG_S)
    versions += [version_of(second.expect(UPDATE, LONG_S)) for _ in range(2)]
    check(versions == sorted(versions), f"versions {versions}")
    check(versions[3][0] > versions[2][0], f"the second learner has the first one's versions: {versions}")
    updates = [int(match[1]) for line in second.lines if (match := re.search(UPDATE, line))]
    check(updates[0] > 25, f"it has begun anew, at update {updates[0]}, rather than from its checkpoint")
    second.terminate()
    check(second.wait(LONG_S) == 0, f"a learner that is asked to end ended with {second.status}")
    for player in players:
        player.terminate()
        check(player.wait(LONG_S) == 0, f"an actor that is asked to end ended with {player.status}: {player.lines[-3:]}")
    return Result(recovery.seconds, f"weights {'.'.join(map(str, versions[2]))}, then {'.'.join(map(str, versions[3]))}")


def version_of(match: re.Match[str]) -> tuple[int, int]:
    return int(match[2]), int(match[3])


SCENARIOS = [Scenario("learner_killed", learner_killed, quick=True)]
