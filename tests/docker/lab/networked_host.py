"""The half of a host that containers and namespaces share: faults of the network, made where its interface is."""

from __future__ import annotations

import abc
import subprocess
from typing import Sequence

from lab.hosts import Host, Unsupported
from lab.program import LabError

# What iptables waits for others that change the same tables.
_IPTABLES = ("iptables", "--wait", "10")
_TIMEOUT_S = 60


class NetworkedHost(Host):
    """A host whose network namespace this process can enter, as root. What its network is to suffer is kept here, so
    that it can be made true of another namespace after a restart, and when another host has another address."""

    # Of the namespace.
    interface = "eth0"

    def __init__(self) -> None:
        self._forget_faults()

    def _forget_faults(self) -> None:
        self._is_cut = False
        # Of what is sent: fractions by receiver; None stands for all.
        self._drops: dict[Host | None, float] = {}
        self._refused: list[Host] = []
        self._kbit_per_s: int | None = None
        self._delay_ms = 0.0

    @abc.abstractmethod
    def _enter_network(self) -> Sequence[str] | None:
        """The beginning of a command that runs the rest of it in the host's network namespace. None while the host
        is down: then faults are made when it is up again."""

    def cut(self) -> None:
        self._is_cut = True
        self.apply_faults()

    def reconnect(self) -> None:
        self._is_cut = False
        self.apply_faults()

    def drop(self, fraction: float = 1.0, to: Host | None = None) -> None:
        if not 0 <= fraction <= 1:
            raise LabError(f"{self.name}: {fraction:g} is no fraction of packets; give one from 0 to 1")
        if fraction == 0:
            self._drops.pop(to, None)
        else:
            self._drops[to] = fraction
        self.apply_faults()

    def refuse(self, source: Host) -> None:
        if source not in self._refused:
            self._refused.append(source)
        self.apply_faults()

    def rate(self, kbit_per_s: int | None) -> None:
        if kbit_per_s is not None and kbit_per_s < 1:
            raise LabError(f"{self.name}: {kbit_per_s} kbit/s is no rate; give 1 at least, or None for no limit")
        self._kbit_per_s = kbit_per_s
        self.apply_faults()

    def delay(self, ms: float) -> None:
        if ms < 0:
            raise LabError(f"{self.name}: {ms:g} ms is no delay; give 0 or more")
        self._delay_ms = ms
        try:
            self.apply_faults()
        except Unsupported:
            self._delay_ms = 0.0
            raise

    def heal(self) -> None:
        self._forget_faults()
        self.apply_faults()

    def _rules(self) -> list[list[str]]:
        rules = []
        if self._is_cut:
            rules.append(["-A", "INPUT", "-i", self.interface, "-j", "DROP"])
            rules.append(["-A", "OUTPUT", "-o", self.interface, "-j", "DROP"])
        for receiver, fraction in self._drops.items():
            rule = ["-A", "OUTPUT", "-o", self.interface]
            if receiver is not None:
                rule += ["-d", receiver.address]
            if fraction < 1:
                rule += ["-m", "statistic", "--mode", "random", "--probability", f"{fraction:.6f}"]
            rules.append([*rule, "-j", "DROP"])
        for source in self._refused:
            rule = ["-A", "INPUT", "-i", self.interface, "-s", source.address, "-p", "tcp", "--syn"]
            rules.append([*rule, "-j", "REJECT", "--reject-with", "tcp-reset"])
        return rules

    def apply_faults(self) -> None:
        """Makes the namespace as it is to be: to be called when the host is up again, and when an address that it
        drops or refuses has changed."""
        enter = self._enter_network()
        if enter is None:
            return
        for chain in ("INPUT", "OUTPUT"):
            self._run(enter, [*_IPTABLES, "-F", chain])
        for rule in self._rules():
            self._run(enter, [*_IPTABLES, *rule])
        self._shape(enter)

    def _shape(self, enter: Sequence[str]) -> None:
        # Fails where there is none.
        subprocess.run(
            [*enter, "tc", "qdisc", "del", "dev", self.interface, "root"],
            capture_output=True, timeout=_TIMEOUT_S, check=False,
        )  # fmt: skip
        add = ["tc", "qdisc", "add", "dev", self.interface]
        # The one is the parent of the other where both are wanted.
        place = ["root", "handle", "1:"]
        if self._kbit_per_s is not None:
            limits = ["rate", f"{self._kbit_per_s}kbit", "burst", "16kb", "latency", "400ms"]
            self._run(enter, [*add, *place, "tbf", *limits])
            place = ["parent", "1:", "handle", "2:"]
        if self._delay_ms > 0:
            try:
                self._run(enter, [*add, *place, "netem", "delay", f"{self._delay_ms:g}ms"])
            except LabError as error:
                raise Unsupported(f"{error} (nothing can be delayed by a kernel without netem)") from None

    def _run(self, enter: Sequence[str], command: Sequence[str]) -> None:
        done = subprocess.run([*enter, *command], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        if done.returncode != 0:
            raise LabError(f"{self.name}: {' '.join(command)}: {done.stderr.strip() or done.returncode}")
