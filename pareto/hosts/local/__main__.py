"""`python -m pareto.hosts.local`, the builder: builds the local testbed and keeps it until its stdin ends.

It runs as root, as a child of the driver, which need not be root; or as root of a user namespace of its own, into which
the driver has put it. It speaks `pareto.protocol.jsonlines`:

- `own` {uid}: first, where it is in a namespace of its own, which the user with that number made
- `build` {hosts: by name, in the order of the chain, {cpu_share, memory}; user, public_key, shaper: auto|netem|relay,
  tcp: a TcpSettings' fields} -> logins: how to reach each host; facts: what is in force, for the manifest
- `shape` {link, a profile's fields}: a profile for the relay on that link, counted from the edge; `restart`, `seed` and
  `stats` {link}: the relay's own requests
- `check`: fails where a part of the testbed is gone
- `examine` -> netem (whether this kernel has it), leftovers of what was killed; `repair`: remove these

Where a part is gone it says which on stderr, takes the rest down and ends: a testbed lives as a whole or not at all.
"""

from __future__ import annotations

import os
import pwd
import secrets
import select
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pareto.hosts.connection import ChildProcess, ending
from pareto.hosts.host import TcpSettings
from pareto.hosts.local import cpu, journal, network, sshd, user_namespace
from pareto.hosts.session import Session
from pareto.protocol.jsonlines import Refused, serve
from pareto.protocol.validation import read
from pareto.remote.link import journal as link_journal
from pareto.remote.link import offload, qdisc
from pareto.remote.link.profile import Profile

WATCH_S = 1.0
"""How often the builder looks whether all parts are there; a process that ends is noticed at once."""


@dataclass
class Part:
    """A process of the testbed. errors: its last line may say why it ended. pauses: looks in a row at a stopped one."""

    name: str
    process: subprocess.Popen[bytes]
    errors: Path | None = None
    pauses: int = 0

    def fault(self) -> str:
        """Why it no longer works; empty where it does."""
        status = self.process.poll()
        if status is not None:
            return f"{self.name} ended: {self._last_words() if status >= 0 else ending(status)}"
        stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        self.pauses = self.pauses + 1 if stat.rpartition(")")[2].split()[0] == "T" else 0
        return f"{self.name} is stopped (SIGSTOP)" if self.pauses > 1 else ""

    def _last_words(self) -> str:
        lines = self.errors.read_text(errors="replace").splitlines() if self.errors is not None else []
        # `unshare` complains where what it started was killed.
        own = [line for line in lines if not line.startswith("unshare:")]
        return own[-1] if own else "by itself, or it was killed"


class Builder:
    """The testbed of one run: what was started here, and how it goes away."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # the end may come while `build` is at work
        self._ended = False
        self._own: user_namespace.UserNamespace | None = None
        self._journal: journal.Journal | None = None
        self._parts: list[Part] = []
        self._watches: list[network.Watch] = []
        self._relays: list[tuple[Session, dict[tuple[str, str], offload.Offloads]]] = []
        """The relay of each link, and the offloads of its ends as they were before, by namespace and interface."""

    def own(self, request: dict[str, Any]) -> None:
        self._own = user_namespace.UserNamespace(request["uid"])

    def build(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            if self._ended:
                raise Refused("the testbed is being taken down")
            return self._built(request)

    def _built(self, request: dict[str, Any]) -> dict[str, Any]:
        tcp, limits, shaper = TcpSettings(**request["tcp"]), request["hosts"], request["shaper"]
        tcp = replace(tcp, congestion=network.congestion_control(tcp.congestion))
        journal.sweep()
        link_journal.repair()
        self._journal = journal.acquire()
        if shaper == "auto":
            shaper = "netem" if qdisc.supported() else "relay"
        spaces, links = network.build(self._journal, [*limits], tcp, relay=shaper == "relay")
        user = pwd.getpwnam(request["user"] if self._own is None else user_namespace.ACCOUNT)
        accounts = sshd.Accounts((user.pw_name, "root")) if self._own is None else self._own.accounts()
        logins, hosts = {}, {}
        cores = cpu.place(len(limits), cpu.physical())
        for host, core in zip(spaces, cores.hosts, strict=True):
            of_host = limits[host.name]
            groups = cpu.limit(self._journal, host.name, of_host["cpu_share"], of_host["memory"])
            folder = self._journal.folder / host.name
            server, key, log = sshd.start(host, folder, accounts, request["public_key"], core, groups)
            self._parts.append(Part(f"the sshd of {host.name}", server, log))
            logins[host.name] = {
                "address": host.management_address,
                "port": accounts.port,
                "user": user.pw_name,
                "namespace": host.namespace,
                "host_key": key,
                "cache": self._cache(host.name, user),
            }
            hosts[host.name] = {
                "data_address": host.ends[0].address,
                "data_interface": host.ends[0].interface,
                "core": core,
                **of_host,
            }
        namespaces = {host.name: host.namespace for host in spaces}
        for link in links:
            if link.relay_namespace is not None:
                ends = [(namespaces[end.role], end.interface) for end in (link.near, link.far)]
                session = self._start_relay(link, cores.rest)
                self._relays.append((session, {end: _offloads(*end) for end in ends}))
        self._watches = network.watches(spaces, links)
        threading.Thread(target=self._watch, name="watch", daemon=True).start()
        facts = {
            "kind": "local",
            "shaper": shaper,
            "on_one_core": [[spaces[number].name for number in those] for those in cores.together],
            "relay_cores": list(cores.rest),
            "congestion_control": tcp.congestion,
            "initial_window_segments": tcp.initial_window,
            "sysctls": network.sysctls(tcp),
            "hosts": hosts,
            "links": [{"near": asdict(link.near), "far": asdict(link.far)} for link in links],
        }
        return {"logins": logins, "facts": facts}

    def shape(self, request: dict[str, Any]) -> Any:
        """Put a profile on the relay. Its packets must be the wire's own size on a slow link: see `offload`."""
        relay, ends = self._relays[request.pop("link")]
        profile: Profile = read(Profile, request)
        coarse = any(offload.too_coarse(way) for way in profile.directions)
        offloads = {}
        for (namespace, interface), before in ends.items():
            with network.inside(namespace):
                offload.write(interface, dict.fromkeys(before, False) if coarse else before)
            offloads[namespace] = _offloads(namespace, interface)
        return {**relay.request("apply", **request), "offloads": offloads}

    def to_relay(self, op: str, request: dict[str, Any]) -> Any:
        relay, _ = self._relays[request.pop("link")]
        return relay.request(op, **request)

    def check(self, request: dict[str, Any]) -> None:
        self._look()

    def examine(self, request: dict[str, Any]) -> dict[str, Any]:
        testbeds = [f"testbed {slot}" for slot in journal.leftovers()]
        return {"netem": qdisc.supported(), "leftovers": [*testbeds, *link_journal.leftovers()]}

    def repair(self, request: dict[str, Any]) -> list[str]:
        return [*(f"testbed {slot} removed" for slot in journal.sweep()), *link_journal.repair()]

    def end(self) -> None:
        with self._lock:
            if self._ended:
                return
            self._ended = True
            for part in self._parts:
                part.process.kill()
            for part in self._parts:
                part.process.wait()
            if self._journal is not None:
                self._journal.undo()
                link_journal.repair()  # helpers that were killed with their namespaces leave a line there
            if self._own is not None:
                self._own.close()

    def _watch(self) -> None:
        ends = [os.pidfd_open(part.process.pid) for part in self._parts]
        while True:
            select.select(ends, [], [], WATCH_S)
            self._look()

    def _look(self) -> None:
        """End where a part of the testbed is gone."""
        with self._lock:
            if self._ended:
                return
            parts = (self._journal, *self._parts, *self._watches)
            fault = next(filter(None, (part.fault() for part in parts if part is not None)), "")
        if fault:
            self.end()
            os.write(2, f"{fault}\n".encode())
            os._exit(1)

    def _cache(self, host: str, user: pwd.struct_passwd) -> str:
        """Where the host keeps what is shipped to it: on disk, since weights can be as large as /run."""
        assert self._journal is not None  # noqa: S101
        folder = f"{tempfile.gettempdir()}/pareto{self._journal.slot}-{host}-{secrets.token_hex(4)}"
        self._journal.note("folder", folder)
        os.mkdir(folder, mode=0o700)  # noqa: PTH102
        if self._own is None:
            os.chown(folder, user.pw_uid, user.pw_gid)
        return folder

    def _start_relay(self, link: network.LinkSpace, cores: Sequence[int]) -> Session:
        """`cores`: where it is to run; none: wherever there is room."""
        near, far = link.near.role, link.far.role
        argv = [
            *sshd.bound_to_parent(str(link.relay_namespace)),
            *(["taskset", "--cpu-list", ",".join(map(str, cores))] if cores else []),
            *[sys.executable, "-B", "-m", "pareto.remote.link.relay", "--edge", near, "--server", far],
        ]
        wire = ChildProcess(argv)
        self._parts.append(Part(f"the relay between {near} and {far}", wire.process))
        return Session(f"relay {near}-{far}", wire)


def _offloads(namespace: str, interface: str) -> offload.Offloads:
    with network.inside(namespace):
        return offload.read(interface)


def main() -> None:
    builder = Builder()
    ops = ("own", "build", "shape", "check", "examine", "repair")
    handlers = {op: getattr(builder, op) for op in ops}
    handlers |= {op: partial(builder.to_relay, op) for op in ("restart", "seed", "stats")}
    serve(handlers, at_end=builder.end)


if __name__ == "__main__":
    main()
