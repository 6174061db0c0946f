"""Hosts that are containers of a Docker engine on this machine."""

from __future__ import annotations

import ipaddress
import itertools
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Iterator, Mapping, Sequence

from lab.hosts import Address, Host, Lab, Reach
from lab.networked_host import NetworkedHost
from lab.program import LabError, Program

# Says which process is whose lab; a lab of a process that is gone is nobody's.
LABEL = "sinew.lab.process"
_FOLDER_LABEL = "sinew.lab.folder"
# Where labs take their networks from.
_NETWORKS = ipaddress.ip_network("10.142.0.0/16")
_TIMEOUT_S = 120
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")


def docker(*words: str | Path, timeout_s: float = _TIMEOUT_S) -> str:
    """What it prints. Raises LabError with what it says if it fails, or takes too long."""
    command = ["docker", *map(str, words)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except FileNotFoundError:
        raise LabError("there is no docker; apt-get install docker.io") from None
    except subprocess.TimeoutExpired:
        raise LabError(f"{' '.join(command)}: not done within {timeout_s:g} s") from None
    if done.returncode != 0:
        raise LabError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout.strip()


class EngineHost(NetworkedHost):
    """A container that does nothing, in which programs are started."""

    def __init__(self, lab: EngineLab, name: str, reach: Reach) -> None:
        super().__init__()
        self.name = name
        self.folder = lab.folder / name
        self._lab = lab
        self._reach = reach
        self._container = f"{lab.name}-{name}"
        self._router = f"{self._container}-router"
        self._address = ""
        # Of its process 1, on this machine; None while it is down.
        self._pid: int | None = None
        self._programs: list[Program] = []
        self.folder.mkdir()
        self.folder.chmod(0o777)
        self._up(Address.NEW)

    @property
    def address(self) -> str:
        return self._address

    def _enter_network(self) -> Sequence[str] | None:
        return None if self._pid is None else _in_network(self._pid)

    def _up(self, address: Address) -> None:
        lab = self._lab
        if address is Address.NEW:
            self._address = lab.next_address()
        if self._reach is Reach.BEHIND_NAT:
            self._up_behind_router()
        else:
            place = ["--network", lab.name, "--ip", self._address, "--network-alias", self.name]
            self._run_container(self._container, place)
        self._pid = _pid_of(self._container)
        self.apply_faults()

    def _run_container(self, container: str, flags: Sequence[str]) -> None:
        lab = self._lab
        # Names that are not the lab's the engine asks for in vain, and a program need not wait for that.
        few_names = ["--dns", "127.0.0.1", "--dns-opt", "timeout:1", "--dns-opt", "attempts:1"]
        docker(
            "run", "--detach", "--init", "--name", container, "--hostname", self.name,
            "--label", f"{LABEL}={os.getpid()}", "--read-only", "--tmpfs", "/tmp",
            "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--no-healthcheck", *lab.user,
            "--volume", f"{lab.folder}:{lab.folder}", "--workdir", self.folder,
            *few_names, *flags, lab.image, "sleep", "infinity",
        )  # fmt: skip

    def _up_behind_router(self) -> None:
        """The address is the router's, which has the host's network behind it. Names of other networks the engine
        does not tell there, so this host has those of the lab as a file."""
        lab = self._lab
        inner = f"{self._container}-inner"
        docker("network", "create", "--internal", "--label", f"{LABEL}={os.getpid()}", inner)
        self._run_container(
            self._router, ["--network", lab.name, "--ip", self._address, "--sysctl", "net.ipv4.ip_forward=1"]
        )
        docker("network", "connect", inner, self._router)
        names = ["--volume", f"{lab.hosts_file}:/etc/hosts:ro", "--volume", f"{lab.resolver_file}:/etc/resolv.conf:ro"]
        self._run_container(self._container, ["--network", inner, *names])
        gateway = _address_of(self._router, inner)
        router = _in_network(_pid_of(self._router))
        host = _in_network(_pid_of(self._container))

        def new_from_outside(chain: str) -> list[str]:
            return ["iptables", "-A", chain, "-i", "eth0", "-m", "conntrack", "--ctstate", "NEW"]

        for command in (
            [*router, "iptables", "-t", "nat", "-A", "POSTROUTING", "-o", "eth0", "-j", "MASQUERADE"],
            [*router, *new_from_outside("INPUT"), "-j", "DROP"],
            [*router, *new_from_outside("FORWARD"), "-j", "DROP"],
            [*host, "ip", "route", "replace", "default", "via", gateway],
        ):
            _run(self.name, command)

    def start(self, command: Sequence[str | Path], env: Mapping[str, str] | None = None) -> Program:
        if self._pid is None:
            raise LabError(f"{self.name} is down; restart() it before a program is started there")
        name = f"{Path(command[0]).name} at {self.name}"
        words = ["docker", "exec", "--workdir", str(self.folder)]
        for variable, value in (env or {}).items():
            words += ["--env", f"{variable}={value}"]
        # The engine makes a session for each command: its process group has the number that is said first. Of two
        # outputs it would not keep the order.
        begin = """exec 2>&1
command -v "$1" > /dev/null || { echo "there is no program $1 there"; exit 127; }
echo "$$"
exec "$@"
"""
        inside = ["sh", "-c", begin, "sh", *map(str, command)]
        process = subprocess.Popen(
            [*words, self._container, *inside],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        assert process.stdout is not None
        group = process.stdout.readline().strip()
        if not group.isdigit():
            rest = process.stdout.read().decode("utf-8", "replace")
            process.wait()
            raise LabError(f"{name} could not be started: {group.decode('utf-8', 'replace')}{rest.strip()}")
        program = Program(name, process, lambda number: self._signal(int(group), number))
        self._programs.append(program)
        return program

    def limit(self, memory_mib: int | None = None, threads: int | None = None) -> None:
        flags = [f"--pids-limit={threads}"] if threads is not None else []
        if memory_mib is not None:
            flags += [f"--memory={memory_mib}m", f"--memory-swap={memory_mib}m"]
        docker("update", *flags, self._container)

    def _signal(self, group: int, number: int) -> None:
        # As the user who owns them.
        done = subprocess.run(
            ["docker", "exec", self._container, "sh", "-c", f"kill -{int(number)} -{group}"],
            capture_output=True, text=True, timeout=_TIMEOUT_S, check=False,
        )  # fmt: skip
        # It may just have ended.
        if done.returncode != 0 and "No such process" not in done.stderr:
            raise LabError(f"{self.name}: no signal {number} to {group}: {done.stderr.strip() or done.returncode}")

    def _down(self) -> None:
        if self._pid is None:
            return
        docker("kill", self._container)
        self._pid = None
        for program in self._programs:
            program.wait(_TIMEOUT_S)
        self._programs.clear()

    def kill(self) -> None:
        self._down()

    def restart(self, address: Address = Address.SAME) -> None:
        self._down()
        docker("rm", "--force", "--volumes", self._container)
        if self._reach is Reach.BEHIND_NAT:
            docker("rm", "--force", "--volumes", self._router)
            docker("network", "rm", f"{self._container}-inner")
        self._up(address)
        if address is Address.NEW:
            self._lab.on_new_address()

    def pause(self) -> None:
        if not self._is_paused():
            docker("pause", self._container)

    def resume(self) -> None:
        if self._is_paused():
            docker("unpause", self._container)

    def _is_paused(self) -> bool:
        return docker("inspect", "--format", "{{.State.Paused}}", self._container) == "true"


class EngineLab(Lab):
    """Containers of `image`, whose PATH has the programs. The engine is that of DOCKER_HOST. It must be one of this
    machine, and this process root: faults of networks are made from here."""

    def __init__(self, image: str) -> None:
        self.image = image
        self.name = f"sinew-lab-{os.getpid()}-{secrets.token_hex(3)}"
        self.folder = Path()
        self._hosts: dict[str, EngineHost] = {}
        self._addresses: Iterator[str] = iter(())
        # Of users in containers; who is root here is whoever the image says.
        self.user: Sequence[str] = ()

    @staticmethod
    def obstacle() -> str | None:
        if shutil.which("docker") is None:
            return "there is no docker; apt-get install docker.io"
        if os.geteuid() != 0:
            return "only root can make faults in the networks of containers"
        for program in ("iptables", "tc", "nsenter"):
            if shutil.which(program) is None:
                return f"there is no {program}; apt-get install iptables iproute2 util-linux"
        try:
            docker("version", timeout_s=20)
        except LabError as error:
            return f"no container engine answers: {error}"
        return None

    @property
    def hosts(self) -> Mapping[str, Host]:
        return dict(self._hosts)

    @property
    def hosts_file(self) -> Path:
        return self.folder / ".hosts"

    @property
    def resolver_file(self) -> Path:
        """Says that nobody knows any other names."""
        return self.folder / ".resolv.conf"

    def __enter__(self) -> EngineLab:
        remove_stale()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{self.name}-"))
        self.folder.chmod(0o777)
        self.resolver_file.write_text("nameserver 127.0.0.1\n")
        try:
            self._make_network()
        except BaseException:
            self._remove()
            raise
        self._write_hosts_file()
        return self

    def _make_network(self) -> None:
        for subnet in _networks_from_any():
            try:
                docker(
                    "network", "create", "--internal", "--label", f"{LABEL}={os.getpid()}",
                    "--label", f"{_FOLDER_LABEL}={self.folder}", "--subnet", str(subnet), self.name,
                )  # fmt: skip
            except LabError as error:
                # Another lab has it, or this machine is in it.
                if "overlap" in str(error):
                    continue
                raise
            # The first one is the engine's own.
            self._addresses = (str(address) for address in itertools.islice(subnet.hosts(), 1, None))
            return
        raise LabError(f"all networks of {_NETWORKS} are taken; docker network prune")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        _remove_labelled(str(os.getpid()), self.name)
        shutil.rmtree(self.folder, ignore_errors=True)

    def next_address(self) -> str:
        try:
            return next(self._addresses)
        except StopIteration:
            raise LabError(f"{self.name} has had 253 addresses, and there are no more") from None

    def add_host(self, name: str, reach: Reach = Reach.ALL) -> EngineHost:
        if not _NAME.fullmatch(name):
            raise LabError(f"'{name}' is no name of a host; take lower-case letters, digits and hyphens, 32 at most")
        if name in self._hosts:
            raise LabError(f"there is a host '{name}' already")
        host = EngineHost(self, name, reach)
        self._hosts[name] = host
        self._write_hosts_file()
        return host

    def on_new_address(self) -> None:
        self._write_hosts_file()
        for host in self._hosts.values():
            host.apply_faults()

    def _write_hosts_file(self) -> None:
        lines = ["127.0.0.1 localhost", *(f"{host.address} {host.name}" for host in self._hosts.values())]
        # In place: it is the file itself that is mounted.
        self.hosts_file.write_text("\n".join(lines) + "\n")


def _networks_from_any() -> Iterator[ipaddress.IPv4Network]:
    networks = list(_NETWORKS.subnets(new_prefix=24))
    first = secrets.randbelow(len(networks))
    yield from networks[first:]
    yield from networks[:first]


def remove_stale() -> None:
    """What labs have left whose processes were killed."""
    label = f"label={LABEL}"
    columns = f'{{{{.Label "{LABEL}"}}}} {{{{.Label "{_FOLDER_LABEL}"}}}}'
    containers = docker("ps", "--all", "--format", columns, "--filter", label).splitlines()
    networks = docker("network", "ls", "--format", columns, "--filter", label).splitlines()
    for pid, *folder in {tuple(line.split()) for line in [*containers, *networks]}:
        if Path(f"/proc/{pid}").exists():
            continue
        _remove_labelled(pid, "")
        # A label says what anybody has put there.
        for path in folder:
            if Path(path).name.startswith(f"sinew-lab-{pid}-"):
                shutil.rmtree(path, ignore_errors=True)


def _remove_labelled(pid: str, prefix: str) -> None:
    label = f"label={LABEL}={pid}"
    containers = docker("ps", "--all", "--format", "{{.Names}}", "--filter", label).split()
    mine = [container for container in containers if container.startswith(prefix)]
    if mine:
        docker("rm", "--force", "--volumes", *mine)
    for network in docker("network", "ls", "--format", "{{.Name}}", "--filter", label).split():
        if network.startswith(prefix):
            docker("network", "rm", network)


def _in_network(pid: int) -> list[str]:
    return ["nsenter", "--target", str(pid), "--net"]


def _pid_of(container: str) -> int:
    return int(docker("inspect", "--format", "{{.State.Pid}}", container))


def _address_of(container: str, network: str) -> str:
    networks = json.loads(docker("inspect", "--format", "{{json .NetworkSettings.Networks}}", container))
    return str(networks[network]["IPAddress"])


def _run(host: str, command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise LabError(f"{host}: {' '.join(command)}: {done.stderr.strip() or done.returncode}")
