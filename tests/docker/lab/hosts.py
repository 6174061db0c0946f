"""What tests see of a lab: hosts in a network of their own, the programs on them, and what befalls them.

Written once against this, a test runs over containers (engine.py) and over network namespaces (namespaces.py).
All of it is for one thread at a time, but for what Program says. Each wait has a limit. What goes wrong raises
LabError, whose text names the culprit and says what to do.
"""

from __future__ import annotations

import abc
import enum
from pathlib import Path
from types import TracebackType
from typing import Mapping, Sequence

from lab.program import LabError, Program


class Unsupported(LabError):
    """This machine cannot do it, whoever asks: its kernel has no netem, say. A test is skipped for that."""


class Reach(enum.Enum):
    """Who can open a connection to a host."""

    ALL = "all"
    # It opens connections under the address of a router, and nobody opens any to it.
    BEHIND_NAT = "behind NAT"


class Address(enum.Enum):
    """What a host that starts again is reached at."""

    SAME = "same"
    NEW = "new"


class Host(abc.ABC):
    """A machine as programs see it: a name, an address, a network interface, processes. Made by Lab.add_host().

    Faults of the network add up, and stay until they are taken back, also when the host restarts. Nobody is told of
    what is dropped: packets vanish. They hit what goes over the network; a host still reaches itself.
    """

    name: str
    # The folder of the lab that is this host's by agreement; it is there, and stays when the host restarts.
    folder: Path

    @property
    @abc.abstractmethod
    def address(self) -> str:
        """IPv4. Another one after restart(Address.NEW)."""

    @abc.abstractmethod
    def start(self, command: Sequence[str | Path], env: Mapping[str, str] | None = None) -> Program:
        """Starts a program in the host's folder. Its name is looked up in the PATH that the lab has for its hosts.
        `env` is added to the host's own environment, of which nothing comes from this process. LabError if there is
        no such program, or the host is down."""

    def limit(self, memory_mib: int | None = None, threads: int | None = None) -> None:
        """What programs that it starts from now on have all together, by a control group: until it restarts. Raises
        Unsupported where there can be none."""
        raise Unsupported(f"{self.name} has no control group of its own")

    @abc.abstractmethod
    def kill(self) -> None:
        """The power fails: all programs are killed at once, no connection is closed, and nobody answers at its
        address. It stays so until restart(). Idempotent."""

    @abc.abstractmethod
    def restart(self, address: Address = Address.SAME) -> None:
        """As after kill(), but the host is there again, without programs. With Address.NEW its name leads to an
        address that no host of this lab had before."""

    @abc.abstractmethod
    def pause(self) -> None:
        """All of its programs stand still, as in a virtual machine that is suspended. The kernel still
        acknowledges what comes. Idempotent, as resume()."""

    @abc.abstractmethod
    def resume(self) -> None: ...

    @abc.abstractmethod
    def cut(self) -> None:
        """Nothing gets from or to the host until reconnect(). Both are idempotent."""

    @abc.abstractmethod
    def reconnect(self) -> None: ...

    @abc.abstractmethod
    def drop(self, fraction: float = 1.0, to: Host | None = None) -> None:
        """From now on so many of the packets that this host sends, to `to` or else to all, are lost: one way only.
        Replaces what an earlier call said for the same `to`; 0 takes that back."""

    @abc.abstractmethod
    def refuse(self, source: Host) -> None:
        """From now on connections that `source` opens to this host are refused at once, as by a firewall that
        rejects. Those that are open stay."""

    @abc.abstractmethod
    def rate(self, kbit_per_s: int | None) -> None:
        """What this host sends goes at this rate at most; None: as fast as it can."""

    @abc.abstractmethod
    def delay(self, ms: float) -> None:
        """What this host sends comes so much later; 0: no longer. Raises Unsupported where the kernel has no netem."""

    @abc.abstractmethod
    def heal(self) -> None:
        """Takes back all faults of its network: what cut(), drop(), refuse(), rate() and delay() of this host have
        done."""


class Lab(abc.ABC):
    """The hosts of one job in a private network of theirs. Labs do not see each other, so several may run at once.

    A context manager: at its end programs, hosts, network and folder are gone, whatever the body has raised. What a
    lab has left that was itself killed is removed when the next one begins.
    """

    # Under the same path on this machine and at all hosts, which may write there: what a job's network file system is.
    folder: Path

    @staticmethod
    @abc.abstractmethod
    def obstacle() -> str | None:
        """Why there can be no such lab on this machine, or None."""

    @abc.abstractmethod
    def __enter__(self) -> Lab: ...

    @abc.abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @abc.abstractmethod
    def add_host(self, name: str, reach: Reach = Reach.ALL) -> Host:
        """A host that is up. From now on all hosts know its name, and before they get "no such name". Names are
        those of DNS: letters, digits and hyphens; LabError for another one, or one that is taken."""

    @property
    @abc.abstractmethod
    def hosts(self) -> Mapping[str, Host]:
        """Those that were added, by name."""
