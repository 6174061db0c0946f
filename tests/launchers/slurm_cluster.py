"""A Slurm of three nodes on this machine, without munge and outside of any installation."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import ports

# As names these are known to every machine, and lead to this one.
NODES = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
START_TIMEOUT_S = 60.0
PR_SET_PDEATHSIG = 1

CONFIGURATION = """\
ClusterName=sinew-test
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
SlurmctldPort={controller_port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
ProctrackType=proctrack/pgid
SlurmdParameters=config_overrides
SelectType=select/cons_tres
ReturnToService=2
KillWait=2
"""
NODE = "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4\n"
PARTITION = "PartitionName=test Nodes=ALL Default=YES State=UP\n"


class Unavailable(Exception):
    """Why there can be no Slurm here."""


def _end_with_the_test() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class SlurmCluster:
    """Its daemons are children of this process, and end with it."""

    def __init__(self) -> None:
        missing = [name for name in ("slurmctld", "slurmd", "srun", "sbatch", "sinfo") if not shutil.which(name)]
        if missing:
            raise Unavailable(f"there is no {missing[0]}; install slurmctld, slurmd and slurm-client")
        if os.getuid() != 0:
            raise Unavailable("slurmd must be started by root")
        self._folder = tempfile.TemporaryDirectory(prefix="sinew-slurm-")
        self._daemons: list[subprocess.Popen[bytes]] = []
        self.folder = Path(self._folder.name)
        self.environment = {"SLURM_CONF": str(self.folder / "slurm.conf")}
        try:
            self._configure()
            self._start()
        except BaseException:
            self.stop()
            raise

    def _configure(self) -> None:
        host = socket.gethostname().split(".")[0]
        text = CONFIGURATION.format(host=host, controller_port=ports.free_port(), folder=self.folder)
        for name in NODES:
            text += NODE.format(name=name, host=host, port=ports.free_port())
            (self.folder / "spool" / name).mkdir(parents=True)
        (self.folder / "state").mkdir()
        (self.folder / "slurm.conf").write_text(text + PARTITION)

    def _start(self) -> None:
        self._start_daemon("slurmctld", "-D")
        for name in NODES:
            self._start_daemon("slurmd", "-D", "-N", name)
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and all(daemon.poll() is None for daemon in self._daemons):
            states = self._run("sinfo", "-h", "-N", "-o", "%t").split()
            if states == ["idle"] * len(NODES):
                return
            time.sleep(0.1)
        logs = "".join(log.read_text()[-1000:] for log in sorted(self.folder.glob("*.log")))
        raise Unavailable(f"this Slurm does not start with the test's configuration:\n{logs}")

    def _start_daemon(self, *command: str) -> None:
        self._daemons.append(
            subprocess.Popen(
                command,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                preexec_fn=_end_with_the_test,
            )
        )

    def _run(self, *command: str) -> str:
        ended = subprocess.run(
            command,
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=START_TIMEOUT_S,
        )
        return ended.stdout

    def stop(self) -> None:
        """Ends all jobs, then the daemons."""
        if len(self._daemons) > len(NODES):
            self._run("scancel", "--user=root")
            deadline = time.monotonic() + START_TIMEOUT_S
            while self._run("squeue", "-h") and time.monotonic() < deadline:
                time.sleep(0.1)
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in self._daemons:
            try:
                daemon.wait(timeout=START_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self._daemons.clear()
        self._folder.cleanup()
