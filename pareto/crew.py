"""The two workers of a run: started once, kept across cells, started again when one is lost."""

from __future__ import annotations

import secrets
from dataclasses import asdict
from typing import Any

from pareto import bounds
from pareto.hosts.session import Session
from pareto.hosts.shaping import Shaper
from pareto.hosts.testbed import EDGE, SERVER, LocalTestbed, TestbedError
from pareto.link import probe
from pareto.link.profile import Profile
from pareto.plan import RESULT_BYTES, Effort, Trial
from pareto.prepare import Artifact, Prepared
from pareto.probing import probed, settle
from pareto.spec import Cell

START_TIMEOUT_S = 120.0
LOAD_TIMEOUT_S = 300.0
WARM_TIMEOUT_S = 120.0
MAX_WARM_UPS = 5
WARM = 1.1
"""A connection is warm when bulk takes at most this multiple of what the link needs."""
MIN_WARM_BYTES, MAX_WARM_BYTES = 1 << 18, 8 << 20


class Crew:
    """Edge and server worker, with what they have loaded and which link lies between them.

    Its methods raise SessionError, SessionLost or TimeoutError; after any of them, `close`: the next `ready` starts
    both workers again.
    """

    def __init__(
        self, testbed: LocalTestbed, prepared: dict[str, Prepared], backends: tuple[str, ...]
    ) -> None:
        self._testbed = testbed
        self._prepared = prepared
        self._backends = backends
        self._sessions: dict[str, Session] = {}
        self._model: str | None = None
        self._proven: set[Cell] = set()
        self._profile: Profile | None = None
        self._ports: dict[str, int] = {}
        self._token = ""
        self._server_address = testbed.remotes[SERVER].host.data_address
        self.shaped: dict[str, Any] = {}

    def start(self) -> None:
        """Start both workers; they are connected once a link is shaped."""
        self._model = self._profile = None
        self._proven.clear()
        self._token = secrets.token_hex(16)
        try:
            for name, remote in self._testbed.remotes.items():
                session = remote.start("pareto.worker", "--threads", str(remote.host.threads))
                self._testbed.heartbeat.add(session)
                self._sessions[name] = session
            self._ports = self._sessions[SERVER].request(
                "listen", START_TIMEOUT_S, address=self._server_address, token=self._token
            )
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for session in self._sessions.values():
            self._testbed.heartbeat.remove(session)
            session.close()
        self._sessions.clear()

    def facts(self) -> dict[str, Any]:
        """What each host says of itself."""
        return self._both("facts", {name: {} for name in self._sessions}, START_TIMEOUT_S)

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
        settle(self.shaper, self._sessions[EDGE], profile)
        for backend in self._backends:
            self._warm(backend, profile)
        self._profile = profile

    def probed(self, profile: Profile, tolerance: probe.Tolerance) -> tuple[probe.Probed, probe.Span]:
        """Measure the link now, with the verdict, and the part of its traces that passed meanwhile."""
        return probed(self.shaper, self._sessions[EDGE], profile, tolerance)

    @property
    def shaper(self) -> Shaper:
        return self._testbed.shaper

    def trial(self, trial: Trial, profile: Profile, effort: Effort) -> tuple[dict[str, Any], dict[str, Any]]:
        """One trial: the edge's report, and the server's CPU and memory while it ran."""
        cell = trial.cell
        facts = self._prepared[cell.model].facts
        payload = facts.points[cell.point][1] * cell.batch_size
        result = RESULT_BYTES * cell.batch_size
        server, edge = self._sessions[SERVER], self._sessions[EDGE]
        stage = {"point": cell.point, "batch_size": cell.batch_size}
        self._both("stage", dict.fromkeys(self._sessions, stage), LOAD_TIMEOUT_S)
        server.request("usage")
        report = edge.request(
            "trial",
            60.0 + 10.0 * trial.estimate_s,
            point=cell.point,
            batch_size=cell.batch_size,
            backend=cell.backend,
            interface=self._testbed.remotes[EDGE].host.data_interface,
            warmup_requests=trial.warmup_requests(cell in self._proven),
            transfer_s=bounds.transfer_s(profile, payload, result),
            **{
                phase: dict(zip(("requests", "seconds"), of, strict=True))
                for phase, of in asdict(effort).items()
            },
        )
        if "latency_s" in report:
            self._proven.add(cell)
        return report, server.request("usage")

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
        nbytes = _warm_bytes(profile)
        needed_s = profile.rtt_s + bounds.transfer_s(profile, nbytes, 0)
        for _ in range(MAX_WARM_UPS):
            took_s = self._sessions[EDGE].request("warm", WARM_TIMEOUT_S, backend=backend, nbytes=nbytes)
            if took_s <= WARM * needed_s or not profile.tcp_fills:  # there the window never settles
                return

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


def _warm_bytes(profile: Profile) -> int:
    """Enough to take the congestion window past bandwidth x delay from its initial ten segments."""
    rate = profile.typical.edge_to_server.rate_bps
    if rate is None:
        return MAX_WARM_BYTES
    return max(MIN_WARM_BYTES, min(MAX_WARM_BYTES, int(2 * rate / 8 * profile.rtt_s)))
