"""Jobs whose workers prove who they are."""

from __future__ import annotations

from pathlib import Path

from lab.hosts import Host, Lab
from scenarios.rl import ENDLESS, check_that_it_plays, play_on, rl_job
from scenarios.scenario import LONG_S, Result, Scenario, check


def certificates(host: Host, folder: Path, *workers: str) -> Path:
    """Made at a host, so that programs of all hosts can read them."""
    for words in (["init", folder], ["issue", folder, *workers]):
        made = host.start(["sinew-ctl", "certs", *words])
        check(made.wait(LONG_S) == 0, "\n".join(made.lines))
    return folder


def foreign_certificate(lab: Lab) -> Result:
    """A worker with the certificate of another job wants a place that is free: it is refused, and the job goes on."""
    names = ("agent", "observer1", "observer2")
    hosts = [lab.add_host(name) for name in names]
    ours = certificates(hosts[0], lab.folder / "ours", *names)
    others = certificates(hosts[0], lab.folder / "others", *names)
    job = rl_job(hosts[0], hosts[1:], *ENDLESS, env={"SINEW_EXAMPLES_CERTIFICATES": str(ours)}).start_all()
    play_on(job)
    job[2].kill()
    job[0].expect("observer2 is lost; the others", LONG_S)

    intruder = rl_job(hosts[0], hosts[1:], env={"SINEW_EXAMPLES_CERTIFICATES": str(others)}).start(2)
    status = intruder.wait(LONG_S)
    said = "\n".join(intruder.lines)
    check(status == 3, f"the intruder ended with {status}: {said}")
    play_on(job)
    check(not any("observer2 joins" in line for line in job[0].lines), f"the intruder was let in: {said}")
    check(job[1].is_running, "the other observer has ended")

    job.start(2)
    job[0].expect("observer2 joins the team", LONG_S)
    check_that_it_plays(job, 2)
    return Result(note=intruder.lines[-1][:100])


SCENARIOS = [Scenario("foreign_certificate", foreign_certificate, quick=True)]
