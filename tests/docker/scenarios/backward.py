"""A trainer that dies while a server works in its backward pass."""

from __future__ import annotations

from lab.hosts import Lab
from lab.program import Program
from scenarios.scenario import LONG_S, FixedJob, Result, Scenario, Stopwatch, check, own_program

NAMES = ("server", "trainer1", "trainer2", "victim")


def killed_inside_backward(lab: Lab) -> Result:
    """The server is known to be inside of the pass. The others go on, and what the victim had at the server is no more:
    contexts, passes, references."""
    program = own_program(lab, "backward_worker")
    orders = lab.folder / "orders"
    orders.mkdir()
    orders.chmod(0o755)
    hosts = [lab.add_host(name) for name in NAMES]
    job = FixedJob(hosts, [[str(program), name, str(orders)] for name in NAMES]).start_all()
    server, *trainers, victim = (job[rank] for rank in range(len(NAMES)))
    server.expect("inside backward", LONG_S)
    go_on(trainers)
    server.catch_up()
    server.expect(r"tables: .*autograd\.passes=[1-9]", LONG_S)

    with Stopwatch() as recovery:
        victim.kill()
        go_on(trainers)
    (orders / "release").touch()
    go_on(trainers)
    (orders / "rest").touch()
    for trainer in trainers:
        trainer.expect("^rests", LONG_S)
    server.catch_up()
    server.expect("^tables: empty", LONG_S)

    (orders / "end").touch()
    for ended in (server, *trainers):
        check(ended.wait(LONG_S) == 0, f"{ended.name} ended with {ended.status}: {ended.lines[-3:]}")
    return Result(recovery.seconds)


def go_on(trainers: list[Program]) -> None:
    for trainer in trainers:
        trainer.catch_up()
        for _ in range(3):
            trainer.expect("^step ", LONG_S)


SCENARIOS = [Scenario("ps_killed_in_backward", killed_inside_backward, quick=True)]
