"""A lab whose hosts are namespaces of Linux on this machine: network, mounts and host name, but no root of their own.

Hosts hang on a bridge, which is in a namespace too: nothing of a lab is seen in the machine's own network, and the
kernel removes it when the processes that keep the namespaces have ended. These end with the process that has made
the lab, also when that is killed, and programs do likewise. What programs have started and left by then, and the lab's
folder, are removed when the next lab begins.

The thread that enters a lab, and those that start programs, must live as long as the lab: the kernel takes the end of
a thread for that of the parent.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Callable, Iterable, Mapping, Sequence

from lab.control_group import make_group, remove_groups
from lab.hosts import Address, Host, Lab, Reach
from lab.networked_host import NetworkedHost
from lab.program import LabError, Program

# What must be there, and the Debian package that has it.
_TOOLS = {
    "ip": "iproute2",
    "tc": "iproute2",
    "iptables": "iptables",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "unshare": "util-linux",
}
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_OWN_NAMESPACES = ("unshare", "--net", "--mount", "--uts")
# Whatever lab and faults need of the kernel.
_TRIAL = """set -e
ip link add br0 type bridge
ip link add one type veth peer name other
iptables -A OUTPUT -m statistic --mode random --probability 0.5 -j DROP
iptables -A INPUT -p tcp --syn -j REJECT --reject-with tcp-reset
iptables -t nat -A POSTROUTING -s 10.78.0.0/16 -j MASQUERADE
iptables -A FORWARD -m conntrack --ctstate NEW -j DROP
tc qdisc add dev one root tbf rate 1mbit burst 16kb latency 400ms"""
_TIMEOUT_S = 60.0
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")

_FOLDER_PREFIX = "sinew-namespaces-"
# Held by the process whose lab it is, as long as that lives.
_LOCK = "lock"
# In the environment of all programs of a lab: its folder.
_MARK = "SINEW_LAB"
# A folder has its lock by then, or its maker has died before.
_MAKING_S = 60.0

_ROUTER = "10.77.0.1"


def _environment() -> dict[str, str]:
    return {"PATH": _SYSTEM_PATH, "LANG": "C.UTF-8"}


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False, env=_environment(), cwd="/"
    )
    if done.returncode != 0:
        raise LabError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")


def _pids() -> Iterable[int]:
    return (int(entry) for entry in os.listdir("/proc") if entry.isdigit())


def _session(pid: int) -> int | None:
    """None when it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # Behind the program's name, which may have anything in it: state, parent, group, session.
    state, _, _, session = stat.rpartition(")")[2].split()[:4]
    return None if state == "Z" else int(session)


def _send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _kill_all(pids_of: Callable[[], list[int]], whose: str) -> None:
    """Until there are none: those that are killed may just have started others."""
    deadline = time.monotonic() + _TIMEOUT_S
    while pids := pids_of():
        if time.monotonic() > deadline:
            raise LabError(f"{whose}: processes {sorted(pids)} were killed and are still there after {_TIMEOUT_S:g} s")
        _send(pids, signal.SIGKILL)
        time.sleep(0.005)


class _Keeper:
    """A process without any work that keeps namespaces there. It ends with this one."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [*_OWN_NAMESPACES, "sh", "-c", "echo ready; exec cat"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, env=_environment(), cwd="/",
        )  # fmt: skip
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"ready\n":
            self.end()
            raise LabError("no namespace can be made; see what obstacle() says")
        self.pid = self._process.pid
        self._net = os.readlink(f"/proc/{self.pid}/ns/net")

    def network(self) -> list[str]:
        return ["nsenter", f"--target={self.pid}", "--net"]

    def all_namespaces(self) -> list[str]:
        return ["nsenter", f"--target={self.pid}", "--net", "--mount", "--uts"]

    def programs(self) -> list[int]:
        """All that live in the network namespace, but for this keeper."""
        found = []
        for pid in _pids():
            with contextlib.suppress(OSError):
                if pid != self.pid and os.readlink(f"/proc/{pid}/ns/net") == self._net and _session(pid) is not None:
                    found.append(pid)
        return found

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class NamespaceHost(NetworkedHost):
    """Made by NamespaceLab.add_host()."""

    def __init__(self, lab: NamespaceLab, name: str, number: int, reach: Reach, folder: Path) -> None:
        super().__init__()
        self.name = name
        self.folder = folder
        self._lab = lab
        self._number = number
        self._reach = reach
        self._keeper: _Keeper | None = None
        self._is_paused = False
        # Where its programs enter their control groups.
        self._groups: list[Path] = []
        self.boot()

    @property
    def address(self) -> str:
        if self._reach is Reach.BEHIND_NAT:
            return f"10.78.{self._number}.2"
        return f"10.77.{self._number // 250 + 1}.{self._number % 250 + 1}"

    def _enter_network(self) -> Sequence[str] | None:
        return None if self._keeper is None else self._keeper.network()

    def boot(self) -> None:
        keeper = _Keeper()
        try:
            self._plug_in(keeper)
            inside = keeper.all_namespaces()
            _run([*inside, "hostname", self.name])
            for file in ("hosts", "resolv.conf"):
                _run([*inside, "mount", "--bind", str(self._lab.file(file)), f"/etc/{file}"])
        except BaseException:
            keeper.end()
            raise
        self._keeper = keeper
        self.apply_faults()

    def _plug_in(self, keeper: _Keeper) -> None:
        switch = self._lab.switch()
        port = f"port{self._number}"
        # Others may know the address by the hardware that had it before a restart.
        hardware = ":".join(["02", "00", *(f"{int(part):02x}" for part in self.address.split("."))])
        veth = ["type", "veth", "peer", "name", self.interface, "address", hardware, "netns", str(keeper.pid)]
        _run([*switch, "ip", "link", "add", port, *veth])
        width, gateway = 16, _ROUTER
        if self._reach is Reach.BEHIND_NAT:
            width, gateway = 30, f"10.78.{self._number}.1"
            _run([*switch, "ip", "address", "add", f"{gateway}/{width}", "dev", port])
        else:
            _run([*switch, "ip", "link", "set", port, "master", "br0"])
        _run([*switch, "ip", "link", "set", port, "up"])
        inside = keeper.network()
        _run([*inside, "ip", "link", "set", "lo", "up"])
        _run([*inside, "ip", "address", "add", f"{self.address}/{width}", "dev", self.interface])
        _run([*inside, "ip", "link", "set", self.interface, "up"])
        _run([*inside, "ip", "route", "add", "default", "via", gateway])

    def start(self, command: Sequence[str | Path], env: Mapping[str, str] | None = None) -> Program:
        if self._keeper is None:
            raise LabError(f"{self.name} is down and starts no program; restart() it first")
        if self._is_paused:
            raise LabError(f"{self.name} is paused and starts no program; resume() it first")
        # Before all else: in its namespaces it may see no control groups.
        enter = ["sh", "-c", f'for f in {" ".join(map(str, self._groups))}; do echo $$ > $f; done && exec "$@"', "sh"]
        process = subprocess.Popen(
            [*(enter if self._groups else []), *self._keeper.all_namespaces(), f"--wd={self.folder}", "setpriv", "--pdeathsig", "KILL", *command],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
            env={**_environment(), **self._lab.environment(), "HOME": str(self.folder), **(env or {})},
        )  # fmt: skip

        def send(number: signal.Signals) -> None:
            # Groups are not enough: sinew-run gives each of its processes one.
            _send([pid for pid in _pids() if _session(pid) == process.pid], number)

        return Program(f"{Path(command[0]).name} at {self.name}", process, send)

    def limit(self, memory_mib: int | None = None, threads: int | None = None) -> None:
        limits = {} if threads is None else {"pids": threads}
        if memory_mib is not None:
            limits["memory"] = memory_mib << 20
        self._groups = make_group(f"{self._lab.name}-{self.name}", limits)

    def kill(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        self._is_paused = False
        try:
            # Otherwise the kernel would tell the others that connections are closed.
            self._run(keeper.network(), ["ip", "link", "set", self.interface, "down"])
            _kill_all(keeper.programs, self.name)
        finally:
            keeper.end()
        self._lab.forget_port(f"port{self._number}")

    def restart(self, address: Address = Address.SAME) -> None:
        self.kill()
        self._groups = []
        if address is Address.NEW:
            self._number = self._lab.next_number()
            self._lab.address_has_changed()
        self.boot()

    def pause(self) -> None:
        if self._keeper is None:
            raise LabError(f"{self.name} is down; restart() it first")
        self._is_paused = True
        stopped: set[int] = set()
        # A process may start another one until it stands still itself.
        while fresh := set(self._keeper.programs()) - stopped:
            _send(fresh, signal.SIGSTOP)
            stopped |= fresh

    def resume(self) -> None:
        if self._keeper is not None and self._is_paused:
            _send(self._keeper.programs(), signal.SIGCONT)
        self._is_paused = False


class NamespaceLab(Lab):
    """`path`: folders where programs are looked up before those of the system."""

    def __init__(self, path: Sequence[Path] = ()) -> None:
        self._path = ":".join([*(str(folder.resolve()) for folder in path), _SYSTEM_PATH])
        self._hosts: dict[str, NamespaceHost] = {}
        self._numbers = 0
        self._base: Path | None = None
        self._lock: int | None = None
        self._switch: _Keeper | None = None

    @staticmethod
    def obstacle() -> str | None:
        if os.geteuid() != 0:
            return "network namespaces are made as root only: run it with sudo"
        for tool, package in _TOOLS.items():
            if shutil.which(tool, path=_SYSTEM_PATH) is None:
                return f"there is no {tool} here: install {package}"
        try:
            _run([*_OWN_NAMESPACES, "sh", "-c", _TRIAL])
        except LabError as error:
            return f"this kernel, or this container's rights, do not allow network namespaces: {error}"
        return None

    def __enter__(self) -> NamespaceLab:
        remove_stale_labs()
        try:
            self._make_base()
            self._switch = _Keeper()
            inside = self._switch.network()
            _run([*inside, "ip", "link", "set", "lo", "up"])
            _run([*inside, "ip", "link", "add", "br0", "type", "bridge"])
            _run([*inside, "ip", "address", "add", f"{_ROUTER}/16", "dev", "br0"])
            _run([*inside, "ip", "link", "set", "br0", "up"])
            _run([*inside, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"])
            masquerade = ["-s", "10.78.0.0/16", "-d", "10.77.0.0/16", "-j", "MASQUERADE"]
            _run([*inside, "iptables", "-t", "nat", "-A", "POSTROUTING", *masquerade])
            opened = ["-d", "10.78.0.0/16", "-m", "conntrack", "--ctstate", "NEW", "-j", "DROP"]
            _run([*inside, "iptables", "-A", "FORWARD", *opened])
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _make_base(self) -> None:
        self._base = Path(tempfile.mkdtemp(prefix=_FOLDER_PREFIX))
        self.folder = self._base / "files"
        self.folder.mkdir()
        self.file("resolv.conf").write_text("nameserver 127.0.0.1\n")
        self._write_hosts()
        # It is there with its lock held, or not at all: others look for those that nobody holds.
        made = self._base / "lock.new"
        self._lock = os.open(made, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        made.rename(self._base / _LOCK)

    def _end(self) -> None:
        with contextlib.ExitStack() as steps:
            if self._base is not None:
                steps.callback(shutil.rmtree, self._base, ignore_errors=True)
            if self._lock is not None:
                steps.callback(os.close, self._lock)
            if self._base is not None:
                steps.callback(remove_groups, self.name)
                # Also those that have left the host's namespace.
                steps.callback(_kill_all, functools.partial(_marked, self._base), "the lab")
            if self._switch is not None:
                steps.callback(self._switch.end)
            for host in self._hosts.values():
                steps.callback(host.kill)
        self._switch = self._lock = self._base = None

    def add_host(self, name: str, reach: Reach = Reach.ALL) -> Host:
        if _HOST_NAME.fullmatch(name) is None:
            raise LabError(f"{name!r} is no name of a host; give letters, digits and hyphens, 63 at most")
        if name in self._hosts or name == "localhost":
            raise LabError(f"{name!r} is taken; give each host a name of its own")
        folder = self.folder / name
        folder.mkdir()
        host = NamespaceHost(self, name, self.next_number(), reach, folder)
        self._hosts[name] = host
        self._write_hosts()
        return host

    @property
    def hosts(self) -> Mapping[str, Host]:
        return self._hosts

    # For its hosts.

    def switch(self) -> list[str]:
        if self._switch is None:
            raise LabError("the lab has not begun, or is over; use it in a with statement")
        return self._switch.network()

    @property
    def name(self) -> str:
        assert self._base is not None
        return self._base.name

    def file(self, name: str) -> Path:
        assert self._base is not None
        return self._base / name

    def environment(self) -> dict[str, str]:
        return {"PATH": self._path, _MARK: str(self._base)}

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def forget_port(self, port: str) -> None:
        """Its other end has gone with a namespace, which the kernel may not have done yet."""
        with contextlib.suppress(LabError):
            _run([*self.switch(), "ip", "link", "delete", port])

    def address_has_changed(self) -> None:
        self._write_hosts()
        for host in self._hosts.values():
            host.apply_faults()

    def _write_hosts(self) -> None:
        lines = ["127.0.0.1 localhost", *(f"{host.address} {host.name}" for host in self._hosts.values())]
        # In place, since it is the file itself that is bound, and in one piece, since programs read it at any time.
        with self.file("hosts").open("r+b" if self.file("hosts").exists() else "wb") as file:
            text = "".join(f"{line}\n" for line in lines).encode()
            file.write(text)
            file.truncate(len(text))


def _marked(base: Path) -> list[int]:
    """Programs of that lab, and what they have started."""
    mark = f"{_MARK}={base}".encode()
    found = []
    for pid in _pids():
        # Those of others, and those that have ended, cannot be read.
        with contextlib.suppress(OSError):
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") and _session(pid) is not None:
                found.append(pid)
    return found


def remove_stale_labs() -> None:
    """Ends what is left of labs whose process was killed."""
    for base in Path(tempfile.gettempdir()).glob(f"{_FOLDER_PREFIX}*"):
        # Who is not root could have put it there to have something else removed.
        with contextlib.suppress(OSError):
            about = base.lstat()
            if about.st_uid == os.geteuid() and base.is_dir() and not base.is_symlink() and _is_stale(base, about):
                _kill_all(functools.partial(_marked, base), str(base))
                remove_groups(base.name)
                shutil.rmtree(base, ignore_errors=True)


def _is_stale(base: Path, about: os.stat_result) -> bool:
    try:
        lock = os.open(base / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return time.time() - about.st_mtime > _MAKING_S
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
