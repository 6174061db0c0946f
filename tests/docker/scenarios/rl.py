"""The agent and its observers: who is lost, and who comes back."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Sequence

from lab.hosts import Address, Host, Lab, Reach
from scenarios.scenario import LEASE_S, LONG_S, FixedJob, Result, Scenario, Stopwatch, check

# Nothing is learned without a future, so an episode is like the others, and the job goes on.
ENDLESS = ("--gamma", "0", "--log-interval", "1", "--episodes", "1000000", "--output", "")
# Of a job whose curve is compared: one observer, so it is the same to the last digit.
SHORT = ("--episodes", "60", "--seed", "3")


def rl_job(agent: Host, observers: Sequence[Host], *flags: str, **more: object) -> FixedJob:
    commands = [["rl_agent", *flags], *(["rl_observer"] for _ in observers)]
    return FixedJob([agent, *observers], commands, **more)  # type: ignore[arg-type]


def start_rl(lab: Lab, observers: int, *flags: str) -> FixedJob:
    hosts = [lab.add_host("agent"), *(lab.add_host(f"observer{rank}") for rank in range(1, 1 + observers))]
    return rl_job(hosts[0], hosts[1:], *flags).start_all()


def play_on(job: FixedJob, episodes: int = 10) -> None:
    for _ in range(episodes):
        job[0].expect("^Episode ", LONG_S)


def check_that_it_plays(job: FixedJob, rank: int) -> None:
    """By taking all others away: the agent has nobody else to play with."""
    for other in job.programs:
        if other not in (0, rank):
            job[other].kill()
            job[0].expect(f"observer{other} is lost; the others", LONG_S)
    play_on(job)


def rewards(curve: Path) -> list[float]:
    with curve.open(encoding="utf-8", newline="") as file:
        return [float(row["last_reward"]) for row in csv.DictReader(file)]


def reward_floor(lab: Lab) -> Result:
    """Four observers play until the policy is much better than chance, which keeps the pole up for some 20 steps; of four
    observers the worst counts, so 12 is what chance comes to."""
    flags = ("--batch", "--episodes", "250", "--log-interval", "50", "--seed", "1", "--output", "out")
    job = start_rl(lab, 4, *flags)
    status = job[0].wait(LONG_S * 2)
    check(status in (0, 1), f"the agent ended with {status}: {job[0].lines[-5:]}")
    played = rewards(job.hosts[0].folder / "out" / "reward_curve.csv")
    first, last = (sum(part) / len(part) for part in (played[:20], played[-50:]))
    check(len(played) == 250 or status == 0, f"{len(played)} episodes")
    check(last > 40 and last > 2 * first, f"rewards of the first episodes {first:.1f}, of the last ones {last:.1f}")
    for rank in range(1, 5):
        check(job[rank].wait(LONG_S) == 0, f"observer{rank} ended with {job[rank].status}")
    return Result(note=f"reward {first:.0f}, then {last:.0f}")


def observer_killed(lab: Lab) -> Result:
    job = start_rl(lab, 2, *ENDLESS)
    play_on(job)
    with Stopwatch() as recovery:
        job[1].kill()
        job[0].expect("observer1 is lost; the others", LONG_S)
        play_on(job, 1)
    check(job[2].is_running, "the other observer has ended")
    job.start(1)
    job[0].expect("observer1 joins the team", LONG_S)
    check_that_it_plays(job, 1)
    return Result(recovery.seconds)


def observer_paused(lab: Lab) -> Result:
    """For longer than its lease: others take it for lost, and it learns that when it goes on."""
    job = start_rl(lab, 2, *ENDLESS)
    play_on(job)
    job.hosts[1].pause()
    job[0].expect("observer1 is lost; the others", LONG_S)
    play_on(job)
    with Stopwatch() as recovery:
        job.hosts[1].resume()
        job[1].expect("was out of the job, and joins it again", LONG_S)
        job[0].expect("observer1 joins the team", LONG_S)
    check_that_it_plays(job, 1)
    return Result(recovery.seconds)


def cut_before_the_lease(lab: Lab) -> Result:
    """A network that is away for less than a lease costs time, and nothing else: the curve is that of a network without
    faults, to the last digit."""
    curve = undisturbed_curve(lab)
    job = rl_job(lab.hosts["agent"], [lab.hosts["observer1"]], *SHORT, "--output", "cut", "--log-interval", "1")
    job.start_all()
    play_on(job, 5)
    job.hosts[1].cut()
    # Nothing happens that could be waited for.
    job[0].stay(LEASE_S / 3)
    job[0].catch_up()
    with Stopwatch() as recovery:
        job.hosts[1].reconnect()
        job[0].expect("^Episode ", LONG_S)
    check(job[0].wait(LONG_S) == 1, f"the agent ended with {job[0].status}")
    check(not any("is lost" in line for line in job[0].lines), "an observer was lost")
    check(rewards(job.hosts[0].folder / "cut" / "reward_curve.csv") == curve, "another curve than without faults")
    return Result(recovery.seconds)


def cut_beyond_the_lease(lab: Lab) -> Result:
    job = start_rl(lab, 2, *ENDLESS)
    play_on(job)
    with Stopwatch() as noticed:
        job.hosts[1].cut()
        job[0].expect("observer1 is lost; the others", LONG_S)
    play_on(job)
    with Stopwatch() as recovery:
        job.hosts[1].reconnect()
        job[0].expect("observer1 joins the team", LONG_S)
    check_that_it_plays(job, 1)
    return Result(recovery.seconds, f"noticed after {noticed.seconds:.0f} s")


def one_way_drop(lab: Lab) -> Result:
    """What the observer says is lost, what it hears is not."""
    job = start_rl(lab, 2, *ENDLESS)
    play_on(job)
    job.hosts[1].drop(1.0)
    job[0].expect("observer1 is lost; the others", LONG_S)
    play_on(job)
    with Stopwatch() as recovery:
        job.hosts[1].heal()
        job[0].expect("observer1 joins the team", LONG_S)
    check_that_it_plays(job, 1)
    return Result(recovery.seconds)


def undisturbed_curve(lab: Lab) -> list[float]:
    """Of one observer: two runs with the same seed give the same one. Adds the hosts."""
    job = start_rl(lab, 1, *SHORT, "--output", "undisturbed")
    check(job[0].wait(LONG_S) == 1, f"the agent ended with {job[0].status}: {job[0].lines[-3:]}")
    job[1].wait(LONG_S)
    curve = rewards(job.hosts[0].folder / "undisturbed" / "reward_curve.csv")
    check(len(curve) == 60, f"{len(curve)} episodes")
    return curve


def bad_network(lab: Lab) -> Result:
    """One of twenty packets is lost in each direction, at 256 kbit/s: the curve is the same to the last digit."""
    curve = undisturbed_curve(lab)
    job = rl_job(lab.hosts["agent"], [lab.hosts["observer1"]], *SHORT, "--output", "bad")
    for host in job.hosts:
        host.drop(0.05)
        host.rate(256)
    job.start_all()
    check(job[0].wait(LONG_S * 3) == 1, f"the agent ended with {job[0].status}: {job[0].lines[-3:]}")
    check(rewards(job.hosts[0].folder / "bad" / "reward_curve.csv") == curve, "another curve than without faults")
    return Result()


def behind_nat(lab: Lab) -> Result:
    """An observer to which nobody can open a connection."""
    agent, near, robot = lab.add_host("agent"), lab.add_host("observer1"), lab.add_host("robot", Reach.BEHIND_NAT)
    job = rl_job(agent, [near, robot], *ENDLESS).start_all()
    play_on(job)
    check_that_it_plays(job, 2)
    return Result()


def new_address(lab: Lab) -> Result:
    """A container that is started again has another address under its name."""
    job = start_rl(lab, 2, *ENDLESS)
    play_on(job)
    with Stopwatch() as recovery:
        job.hosts[1].restart(Address.NEW)
        job.start(1)
        job[0].expect("observer1 joins the team", LONG_S)
    check_that_it_plays(job, 1)
    return Result(recovery.seconds)


def late_name(lab: Lab) -> Result:
    """Observers start when nobody knows the agent's name yet."""
    observers = [lab.add_host("observer1"), lab.add_host("observer2")]
    place = {"MASTER_ADDR": "agent", "MASTER_PORT": "29500", "WORLD_SIZE": "3", "OMP_NUM_THREADS": "1"}
    trusted = {"SINEW_EXAMPLES_TRUSTED_NETWORK": "1"}
    early = [
        host.start(["rl_observer"], {**place, **trusted, "RANK": str(rank)}) for rank, host in enumerate(observers, 1)
    ]
    # They have looked for it by then.
    early[0].stay(3)
    check(all(program.is_running for program in early), f"observers have given up: {early[0].lines}")
    agent = lab.add_host("agent")
    job = rl_job(agent, observers, *ENDLESS)
    job.programs.update(enumerate(early, 1))
    with Stopwatch() as recovery:
        job.start(0)
        play_on(job, 1)
    play_on(job)
    return Result(recovery.seconds)


def two_jobs(lab: Lab) -> Result:
    """On the same hosts, at ports of their own. One is killed; the other one does not notice."""
    job = start_rl(lab, 1, *ENDLESS)
    other = rl_job(job.hosts[0], job.hosts[1:], *SHORT, "--output", "other", port=29600).start_all()
    play_on(job)
    for rank in (0, 1):
        job[rank].kill()
    check(other[0].wait(LONG_S) == 1, f"the other job ended with {other[0].status}: {other[0].lines[-3:]}")
    check(other[1].wait(LONG_S) == 0, f"its observer ended with {other[1].status}")
    count = len(rewards(other.hosts[0].folder / "other" / "reward_curve.csv"))
    check(count == 60, f"the other job has played {count} episodes")
    return Result()


SCENARIOS = [
    Scenario("rl_reward_floor", reward_floor, quick=False),
    Scenario("rl_observer_killed", observer_killed, quick=True),
    Scenario("rl_observer_paused", observer_paused, quick=True),
    Scenario("cut_before_the_lease", cut_before_the_lease, quick=False),
    Scenario("cut_beyond_the_lease", cut_beyond_the_lease, quick=False),
    Scenario("one_way_drop", one_way_drop, quick=False),
    Scenario("bad_network", bad_network, quick=False),
    Scenario("behind_nat", behind_nat, quick=True),
    Scenario("new_address", new_address, quick=False),
    Scenario("late_name", late_name, quick=False),
    Scenario("two_jobs", two_jobs, quick=False),
]
