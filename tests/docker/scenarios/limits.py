"""Hosts that leave a job little memory, few threads, or not all system calls."""

from __future__ import annotations

from lab.hosts import Lab
from lab.program import Program
from scenarios.scenario import LONG_S, FixedJob, Result, Scenario, check, own_program

MEMORY_MIB = 512
DENIED = ("pidfd_open", "pidfd_send_signal", "waitid")


def check_ended(program: Program) -> None:
    status = program.wait(LONG_S)
    check(status == 0, f"{program.name} ended with {status}: {program.lines[-5:]}")


def little_memory(lab: Lab) -> Result:
    """Of three workers, one at each host, two echo tensors of 1 to 64 MiB. None is killed for its memory."""
    program = own_program(lab, "sizes_worker")
    hosts = [lab.add_host(f"rank{rank}") for rank in range(3)]
    for host in hosts:
        host.limit(memory_mib=MEMORY_MIB)
    job = FixedJob(hosts, [[str(program), "40"]] * 3).start_all()
    for rank in range(3):
        job[rank].expect(f"^memory_bytes {MEMORY_MIB << 20}$", LONG_S)
    for rank in range(3):
        check_ended(job[rank])
    return Result()


def few_threads(lab: Lab) -> Result:
    """What is enough for a worker is, and what is not is said when it starts."""
    program = own_program(lab, "sizes_worker")
    hosts = [lab.add_host(f"rank{rank}") for rank in range(2)]
    for host in hosts:
        host.limit(threads=64)
    job = FixedJob(hosts, [[str(program), "5"]] * 2).start_all()
    for rank in range(2):
        job[rank].expect("^threads 64$", LONG_S)
    for rank in range(2):
        check_ended(job[rank])
    hosts[0].limit(threads=12)
    refused = FixedJob(hosts, [[str(program), "5"]] * 2).start(0)
    said = refused.expect("a worker needs .* pids.max of the control group", LONG_S)
    check(refused.wait(LONG_S) == 3, f"it ended with {refused.status}: {said.string}")
    return Result(note=said.string.partition("a worker needs")[2].strip()[:60])


def denied_calls(lab: Lab) -> Result:
    """Under a filter that denies what sinew-run watches its processes by, as profiles of containers do that are older than
    the calls: with SIGUSR1 to the launcher, and with a stop to the launcher alone and to all processes at once."""
    program, deny = own_program(lab, "sizes_worker"), own_program(lab, "../launch/launch_deny_calls")
    host = lab.add_host("job")
    for error, is_for_all in (("EPERM", False), ("ENOSYS", True), ("ENOSYS", False)):
        rules = [f"{call}={error}" for call in DENIED]
        begin = 'echo "pid $$"; exec "$@"'
        run = ["sinew-run", "-n", "2", "--prefix", "--table", "--grace", "60", program, "1000000"]
        job = host.start(["sh", "-c", begin, "sh", deny, *rules, *run])
        launcher = job.expect(r"^pid (\d+)$", LONG_S).group(1)
        job.expect("sent 10$", LONG_S)
        check_ended(host.start(["sh", "-c", f"kill -USR1 {launcher}"]))
        for _ in range(2):
            job.expect(r"heard$", LONG_S)
        if is_for_all:
            job.terminate()
        else:
            check_ended(host.start(["sh", "-c", f"kill -TERM {launcher}"]))
        for _ in range(2):
            job.expect("is asked to end$", LONG_S)
        for _ in range(2):
            job.expect("ends in order$", LONG_S)
        check_ended(job)
    return Result()


SCENARIOS = [
    Scenario("limits_memory", little_memory, quick=True),
    Scenario("limits_threads", few_threads, quick=True),
    Scenario("limits_denied_calls", denied_calls, quick=True),
]
