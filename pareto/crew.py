"""The workers of a run, with a monitor beside each: started once, kept across cells, started again when one is lost."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from pareto import bounds
from pareto.devices import Devices, Series
from pareto.hosts.host import EDGE, SERVER, TestbedError
from pareto.hosts.session import Session
from pareto.hosts.shaping import Shaper
from pareto.hosts.testbed import Testbed
from pareto.link import probe
from pareto.link.profile import Profile
from pareto.plan import RESULT_BYTES, Effort, Trial
from pareto.prepare import Artifact, Prepared
from pareto.probing import bare, probed, settle
from pareto.spec import Cell

START_TIMEOUT_S = 120.0
LOAD_TIMEOUT_S = 300.0
WARM_TIMEOUT_S = 120.0
MAX_WARM_UPS = 5
MOST_REQUESTS = 60
"""More than a trial makes of requests that take long."""
WARM = 1.1
"""A connection is warm when bulk takes at most this multiple of what the link needs."""
NOT_SHAPED = "none"
MIN_WARM_BYTES, MAX_WARM_BYTES = 1 << 18, 8 << 20


class Crew:
    """Edge and server worker, with what they have loaded and which link lies between them.

    Its methods raise SessionError, SessionLost, TimeoutError or Unreachable; after any of them, `close`: the next
    `ready` starts both workers again, on hosts that are logged in to anew where they were lost.
    """

    def __init__(
        self,
        testbed: Testbed,
        prepared: dict[str, Prepared],
        backends: tuple[str, ...],
        sample_s: float | None = None,
    ) -> None:
        """`sample_s`: how often the devices' sensors are read; None: never."""
        self._testbed = testbed
        self._prepared = prepared
        self._backends = backends
        self._sessions: dict[str, Session] = {}
        self._model: str | None = None
        self._proven: set[Cell] = set()
        self._profile: Profile | None = None
        self._ports: dict[str, int] = {}
        self._told: dict[str, Any] = {}
        self._bare: probe.Reading | None = None
        self._token = ""
        self._server_address = testbed.remotes[SERVER].host.data_address
        self._devices = Devices(testbed, sample_s) if sample_s else None
        self.shaped: dict[str, Any] = {}

    def start(self) -> None:
        """Start both workers; they are connected once a link is shaped."""
        self._testbed.revive()
        self._model = self._profile = None
        self._proven.clear()
        self._token = secrets.token_hex(16)
        try:
            for name, remote in self._testbed.remotes.items():
                options = ("--threads", str(remote.host.threads), "--device", remote.host.device)
                session = remote.start("pareto.worker", *options)
                self._testbed.heartbeat.add(session)
                self._sessions[name] = session
            self._told = self._both("facts", {name: {} for name in self._sessions}, START_TIMEOUT_S)
            if self._devices is not None:
                self._devices.start(self._told)
            self._ports = self._sessions[SERVER].request(
                "listen", START_TIMEOUT_S, address=self._server_address, token=self._token
            )
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._devices is not None:
            self._devices.close()
        for session in self._sessions.values():
            self._testbed.heartbeat.remove(session)
            session.close()
        self._sessions.clear()

    def facts(self) -> dict[str, Any]:
        """What each host says of itself, and which sensors it has. Both are to be idle: their power is measured."""
        devices = self._devices.facts() if self._devices is not None else {}
        return {name: {**told, **devices.get(name, {})} for name, told in self._told.items()}

    def ready(self, cell: Cell, profile: Profile) -> None:
        """Have the cell's model loaded on both hosts and its profile on the link, connections warm."""
        if not self._sessions:
            self.start()
        if cell.model != self._model:
            self._load(self._prepared[cell.model])
        if profile != self._profile:
            self.link(profile)

    def link(self, profile: Profile) -> None:
        """Put a profile on the link, and open every connection over it."""
        self._profile = None
        self.shaped[profile.name] = self.shaper.apply(profile)
        self._connect()
        settle(self.shaper, self._sessions[EDGE], profile, is_local=self._testbed.is_local)
        for backend in self._backends:
            self._warm(backend, profile)
        self._profile = profile

    def probed(self, profile: Profile, tolerance: probe.Tolerance) -> tuple[probe.Probed, probe.Span]:
        """Measure the link now, with the verdict, and the part of its traces that passed meanwhile."""
        edge = self._sessions[EDGE]
        return probed(self.shaper, edge, profile, tolerance, is_local=self._testbed.is_local)

    def bare_link(self) -> probe.Reading:
        """Measure the link between real hosts, before anything is emulated on it."""
        self._profile = None
        self.shaper.apply(Profile(NOT_SHAPED))
        self._connect()
        self._bare = bare(self._sessions[EDGE])
        return self._bare

    @property
    def shaper(self) -> Shaper:
        return self._testbed.shaper

    def trial(
        self,
        trial: Trial,
        profile: Profile,
        effort: Effort,
        sampled: Callable[[dict[str, Any]], None] | None = None,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """One trial: the edge's report, and what the server says of itself while it ran.

        `sampled` gets the devices' latest samples meanwhile, about once a second.
        """
        cell = trial.cell
        facts = self._prepared[cell.model].facts
        payload = facts.points[cell.point][1] * cell.batch_size
        result = RESULT_BYTES * cell.batch_size
        server, edge = self._sessions[SERVER], self._sessions[EDGE]
        stage = {"point": cell.point, "batch_size": cell.batch_size}
        staged = self._both("stage", dict.fromkeys(self._sessions, stage), LOAD_TIMEOUT_S)
        compute_s = sum(told["run_s"] for told in staged.values())  # there; the plan's is the driver's own
        server.request("usage")
        asked = edge.send(
            "trial",
            point=cell.point,
            batch_size=cell.batch_size,
            backend=cell.backend,
            interface=self._testbed.remotes[EDGE].host.data_interface,
            warmup_requests=trial.warmup_requests(cell in self._proven, compute_s),
            transfer_s=bounds.transfer_s(profile, payload, result),
            **{
                phase: dict(zip(("requests", "seconds"), of, strict=True))
                for phase, of in asdict(effort).items()
            },
        )

        def meanwhile() -> None:
            server.check()
            if sampled is not None and self._devices is not None:
                sampled(self._devices.latest())

        report = edge.wait(asked, 60.0 + 10.0 * trial.estimate_s + MOST_REQUESTS * compute_s, meanwhile)
        if "latency_s" in report:
            self._proven.add(cell)
        served = len(report["requests"]["throughput"]["started_s"]) if "requests" in report else 0
        return report, server.request("usage", requests=served)

    def samples(self) -> dict[str, Series]:
        """By host: what its sensors told since the last time."""
        return self._devices.collect() if self._devices is not None else {}

    def sampling(self) -> dict[str, Any] | None:
        """What sampling cost on each host."""
        return self._devices.cost() if self._devices is not None else None

    def _connect(self) -> None:
        """Open every connection anew. What TCP learnt of another link (least RTT, time-out) would mislead it here."""
        address = self._server_address
        to = {
            "address": address,
            "token": self._token,
            "tcp": self._ports["tcp"],
            "probe": self._ports["probe"],
        }
        self._sessions[EDGE].request("connect", START_TIMEOUT_S, **to)
        if "rpc" in self._backends:
            port = self._sessions[SERVER].request("rendezvous", address=address)
            ends = {
                name: {
                    "role": name,
                    "address": address,
                    "port": port,
                    "interface": remote.host.data_interface,
                }
                for name, remote in self._testbed.remotes.items()
            }
            self._both("join_rpc", ends, START_TIMEOUT_S)

    def _warm(self, backend: str, profile: Profile) -> None:
        """Send bulk until it takes what the link needs for it, so that no request pays for a growing window."""
        rate_bps, rtt_s = self._carries(profile)
        # Enough to take the window past bandwidth x delay from its initial ten segments.
        window = 2 * rate_bps / 8 * rtt_s if math.isfinite(rate_bps) else MAX_WARM_BYTES
        nbytes = int(min(max(window, MIN_WARM_BYTES), MAX_WARM_BYTES))
        needed_s = rtt_s + 8 * nbytes / rate_bps
        for _ in range(MAX_WARM_UPS):
            took_s = self._sessions[EDGE].request("warm", WARM_TIMEOUT_S, backend=backend, nbytes=nbytes)
            if took_s <= WARM * needed_s or not profile.tcp_fills:  # there the window never settles
                return

    def _carries(self, profile: Profile) -> tuple[float, float]:
        """Payload from edge to server in bit/s, and the round trip: of the profile, on the link beneath it."""
        asked_bps = profile.typical.edge_to_server.rate_bps
        rate_bps = asked_bps * probe.GOODPUT if asked_bps else math.inf
        if self._bare is None:
            return rate_bps, profile.rtt_s
        return min(rate_bps, self._bare.rate_bps or math.inf), profile.rtt_s + (self._bare.rtt_s or 0.0)

    def _load(self, prepared: Prepared) -> None:
        self._model = None
        fields = {}
        for name, remote in self._testbed.remotes.items():
            data = [_ship(remote, artifact) for artifact in prepared.data.values()]
            fields[name] = {
                "model": prepared.name,
                "weights": _ship(remote, prepared.weights),
                "digest": prepared.weights.digest,
                "data": data,
            }
        loaded = self._both("load", fields, LOAD_TIMEOUT_S)
        for name, told in loaded.items():
            if told["graph_digest"] != prepared.graph_digest:
                raise TestbedError(
                    f"{name} traces another graph of {prepared.name} than the driver: "
                    "its torch or torchvision is another version"
                )
        self._model = prepared.name

    def _both(self, op: str, fields: dict[str, dict[str, Any]], timeout_s: float) -> dict[str, Any]:
        """Ask both workers at the same time."""
        asked = {name: session.send(op, **fields[name]) for name, session in self._sessions.items()}
        return {name: self._sessions[name].wait(number, timeout_s) for name, number in asked.items()}


def _ship(remote: Any, artifact: Artifact) -> str:
    return str(remote.ship(artifact.path, f"{artifact.digest}.safetensors"))
