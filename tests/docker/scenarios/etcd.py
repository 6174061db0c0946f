"""Jobs that meet at etcd: each process is killed in turn, rank 0 too, and etcd itself."""

from __future__ import annotations

import re
import shutil

from lab.hosts import Host, Lab, Unsupported
from lab.namespaces import NamespaceLab
from lab.program import Program
from scenarios.actor_learner import ENDLESS, TRUSTED, UPDATE, version_of
from scenarios.ps_rnn import CHECKPOINTS, ROUND, add_hosts, figures, ps_job, unigram, wait_for_the_others
from scenarios.scenario import LONG_S, Result, Scenario, Stopwatch, check

CLIENT_PORT = 2379
# What etcd logs when it answers.
SERVES = "serving (insecure )?client"


class Etcd:
    """One server, on a host of its own, with its data in that host's folder."""

    def __init__(self, lab: Lab) -> None:
        if not isinstance(lab, NamespaceLab) or shutil.which("etcd") is None:
            raise Unsupported("there is no etcd on these hosts: network namespaces have Debian's etcd-server")
        self.host = lab.add_host("etcd")
        self.start()

    def start(self) -> None:
        client, peer = f"http://etcd:{CLIENT_PORT}", "http://127.0.0.1:2380"
        command = ["etcd", "--name", "s0", "--data-dir", "etcd-data", "--logger", "zap"]
        command += ["--listen-client-urls", f"http://0.0.0.0:{CLIENT_PORT}", "--advertise-client-urls", client]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", f"s0={peer}", "--log-outputs", "stdout"]
        self.program = self.host.start(command)
        self.program.expect(SERVES, LONG_S)

    def url(self, prefix: str) -> str:
        return f"etcd://etcd:{CLIENT_PORT}/{prefix}"


def parameter_servers(lab: Lab) -> Result:
    """Server and trainer are killed, then etcd, and the leader: rank 0's end is the job's, which goes on when all are started
    again."""
    etcd = Etcd(lab)
    hosts = add_hosts(lab, trainers=2, servers=1)
    flags = ("--epochs", "4", "--max-steps", "60", "--init-method", etcd.url("ps"), *CHECKPOINTS)
    job = ps_job(lab, hosts, 1, "out", *flags).start_all()
    job[0].expect(ROUND, LONG_S)
    with Stopwatch() as recovery:
        job[2].kill()
        job.start(2)
        job[0].expect("going on at step", LONG_S)
        job[0].expect(ROUND, LONG_S)
    job[1].kill()
    job[0].expect("with 1 trainer", LONG_S)
    job[0].expect(ROUND, LONG_S)
    # Nobody misses it.
    etcd.program.kill()
    job[0].expect(ROUND, LONG_S)
    etcd.start()
    job[0].expect(ROUND, LONG_S)
    # To go on after an epoch one must have ended.
    while not (hosts[0].folder / "checkpoint" / "latest").exists():
        job[0].expect(ROUND, LONG_S)
    job[0].kill()
    check(job[2].wait(LONG_S) != 0, "a server whose leader is lost says that all is well")
    job = ps_job(lab, hosts, 1, "out", *flags, "--resume").start_all()
    got = figures(job[0])
    chance = unigram(job[0])
    wait_for_the_others(job)
    check(got["valid_perplexity"] < chance, f"perplexity {got['valid_perplexity']}, by chance {chance}")
    return Result(recovery.seconds, f"perplexity {got['valid_perplexity']:.1f}, by chance {chance:.1f}")


def actors_and_learner(lab: Lab) -> Result:
    """Who is rank 0 is killed, while an actor joins; then each actor; then etcd."""
    etcd = Etcd(lab)
    learner = lab.add_host("learner")
    hosts = [lab.add_host(f"actor{number}") for number in (1, 2, 3)]
    address = ("--init-method", etcd.url("rl"))
    rhythm = ("--warm-up", "400", "--evaluate-every", "25", "--checkpoint-every", "25", "--evaluation-episodes", "1")
    command = ["learner", *address, "--checkpoint", "checkpoint", *rhythm, *ENDLESS, "--batch", "16"]

    def start_actor(host: Host) -> Program:
        return host.start(["actor", *address, "--name", host.name, "--speed", "0"], TRUSTED)

    first = learner.start(command, TRUSTED)
    players = [start_actor(host) for host in hosts[:2]]
    for player in players:
        player.expect("found the learner", LONG_S)
    versions = [version_of(first.expect(UPDATE, LONG_S)) for _ in range(3)]
    with Stopwatch() as recovery:
        first.kill()
        # It need not wait for the learner to be in the job.
        players.append(start_actor(hosts[2]))
        second = learner.start(command, TRUSTED)
        versions.append(version_of(second.expect(UPDATE, LONG_S)))
    for player in players:
        player.expect("found the learner", LONG_S)
    for number, host in enumerate(hosts):
        players[number].kill()
        players[number] = start_actor(host)
        players[number].expect("found the learner", LONG_S)
    etcd.program.kill()
    versions += [version_of(second.expect(UPDATE, LONG_S)) for _ in range(2)]
    etcd.start()
    versions.append(version_of(second.expect(UPDATE, LONG_S)))
    check(versions == sorted(versions), f"versions {versions}")
    check(versions[3][0] > versions[2][0], f"the second learner has the first one's versions: {versions}")
    updates = [int(match[1]) for line in second.lines if (match := re.search(UPDATE, line))]
    check(updates[0] > 25, f"it has begun anew, at update {updates[0]}, rather than from its checkpoint")
    for program in (second, *players):
        program.terminate()
        check(program.wait(LONG_S) == 0, f"who is asked to end ended with {program.status}: {program.lines[-3:]}")
    return Result(recovery.seconds, f"weights {'.'.join(map(str, versions[2]))}, then {'.'.join(map(str, versions[3]))}")


SCENARIOS = [
    Scenario("etcd_ps_killed", parameter_servers, quick=True),
    Scenario("etcd_learner_killed", actors_and_learner, quick=True),
]
