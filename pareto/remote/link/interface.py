"""One interface of this host: what leaves it and what arrives at it shaped as asked, and put back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyroute2 import IPRoute

from pareto.remote.link import journal, netem, offload, player, qdisc, steering
from pareto.remote.link.journal import Journal
from pareto.remote.link.netem import Layer, Netem, Prio, QdiscError, Tbf
from pareto.remote.link.player import Player, Track
from pareto.remote.link.profile import NETEM, NETEM_TBF, Direction
from pareto.remote.link.qdisc import TrafficControl
from pareto.remote.link.requests import Apply, parse
from pareto.remote.link.steering import Scope

_IFF_LOOPBACK = 0x8  # linux/if.h


class Interface:
    """Raises QdiscError, OSError or NetlinkError; after one nothing of ours is on the interface."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._journal: Journal | None = None
        self._scope: Scope | None = None
        self._player: Player | None = None
        self._tracks: tuple[Track | None, Track | None] = (None, None)

    def apply(self, wanted: Apply) -> dict[str, Any]:
        """Shape it; returns what is in force, as read back from the kernel."""
        _refuse_unless_it_carries(self.name, wanted.address)
        if not wanted.shaped:
            self.restore()
            journal.claim(self.name).undo()  # what a program that was killed left on it
            return self._report("none", [])
        scope = steering.scope(self.name, wanted.peer, wanted.filtered)
        self._stop()
        if self._journal is None:
            self._journal = journal.claim(self.name)
        try:
            return self._shape(self._journal, wanted, scope)
        except BaseException as error:
            try:
                self.restore()
            except Exception as second:
                raise QdiscError(f"{error}; and {self.name} could not be put back: {second}") from error
            raise

    def play(self, position_s: float) -> None:
        """Begin the traces anew at a position, where there are any."""
        if self._player is not None:
            tracks = self._player.tracks
            self._stop()
            self._player = Player(tracks, position_s)

    def seed(self, egress: int, ingress: int) -> bool:
        """Begin chance anew in both directions; whether it now goes by these seeds, as read back. Not while a trace is
        played: each of its steps begins chance anew by itself."""
        seeded = True
        with TrafficControl() as control:
            for track, seed in zip(self._tracks, (egress, ingress), strict=True):
                if track is None or not track.direction.by_chance:
                    continue
                if track.direction.trace is not None:
                    seeded = False
                    continue
                for place, layer in enumerate(track.chain):
                    if isinstance(layer, Netem):
                        track.put(control, place, replace(layer, seed=seed))
                in_force = [layer for layer in qdisc.read(control, track.index) if isinstance(layer, Netem)]
                seeded = seeded and all(layer.seed == seed for layer in in_force)
        return seeded

    @property
    def position_s(self) -> float | None:
        return self._player.position_s if self._player is not None else None

    def take_fault(self) -> str:
        """Why the traces stopped by themselves, once."""
        fault = self._player.fault if self._player is not None else ""
        if fault:
            self._stop()
        return fault and f"{self.name}: {fault}"

    def drops(self) -> int:
        """Packets that our qdiscs dropped since they were put on."""
        if self._journal is None:
            return 0
        index = self._journal.index
        ifb = steering.ifb_index(index)
        with TrafficControl() as control:
            return qdisc.drops(control, index) + (qdisc.drops(control, ifb) if ifb is not None else 0)

    def restore(self) -> list[str]:
        """Put it back as it was; says what is not, because somebody changed it meanwhile."""
        self._stop()
        if self._journal is None:
            return []
        left = self._journal.undo()
        self._journal = self._scope = None
        self._tracks = None, None
        return left

    def _report(self, shaper: str, without_effect: list[str]) -> dict[str, Any]:
        """The settings in force: each direction's chain was compared with what the kernel reports."""
        egress, ingress = (netem.reading(track.chain) if track else None for track in self._tracks)
        return {
            "shaper": shaper,
            "scope": str(self._scope or Scope()),
            "egress": egress,
            "ingress": ingress,
            "offloads": offload.read(self.name),
            "without_effect": without_effect,
        }

    def _shape(self, before: Journal, wanted: Apply, scope: Scope) -> dict[str, Any]:
        anew = scope != self._scope
        self._scope = scope
        with TrafficControl() as control:
            egress = self._shape_egress(control, before.index, wanted, scope, anew)
            ingress = self._shape_ingress(control, before.index, wanted, scope, anew)
        self._tracks = egress, ingress
        coarse = offload.OFF if offload.too_coarse(wanted.egress) else {}
        glued = {"gro": False} if offload.too_coarse(wanted.ingress) else {}
        offload.write(self.name, before.offloads | coarse | glued)
        tracks = [track for track in self._tracks if track]
        has_bucket = any(isinstance(layer, Tbf) for track in tracks for layer in track.chain)
        # netem takes the remainder of a correlated number by twice the jitter, and the correlation is gone. Measured:
        # none at 5 ms, whatever is asked.
        correlated = wanted.egress.jitter_correlation or wanted.ingress.jitter_correlation
        shaper = NETEM_TBF if has_bucket or wanted.bucket else NETEM
        report = self._report(shaper, ["jitter_correlation"] if correlated else [])
        if playing := [track for track in tracks if track.direction.trace is not None]:
            self._player = Player(playing, wanted.offset_s)
        return report

    def _shape_egress(
        self, control: TrafficControl, index: int, wanted: Apply, scope: Scope, anew: bool
    ) -> Track | None:
        qdisc.refuse_foreign(control, self.name)
        if not wanted.egress.shaped:
            qdisc.remove(control, index)
            return None
        layers = [*([Prio()] if scope.filtered else []), *chain(wanted.egress, wanted)]
        if qdisc.apply(control, self.name, layers, anew=anew) and scope.filtered:
            steering.steer_egress(control, index, scope)
        return Track(index, wanted.egress, layers)

    def _shape_ingress(
        self, control: TrafficControl, index: int, wanted: Apply, scope: Scope, anew: bool
    ) -> Track | None:
        ours = steering.ifb_index(index) is not None
        if ours and (anew or not wanted.ingress.shaped):
            steering.stop_ingress(control, index)
            ours = False
        if not wanted.ingress.shaped:
            return None
        there = control.at(index, qdisc.INGRESS)
        if there is not None and not ours:
            raise QdiscError(
                f"{self.name} already has a {there.kind} qdisc, set by somebody else: it is left alone. Remove it "
                f"(tc qdisc del dev {self.name} {there.kind}) or run the helper on the other host as well"
            )
        ifb = steering.make_ifb(self.name)
        if offload.too_coarse(wanted.ingress):
            offload.write(ifb, offload.OFF)
        track = Track(qdisc.index_of(ifb), wanted.ingress, chain(wanted.ingress, wanted))
        qdisc.apply(control, ifb, track.chain)
        if there is None:
            steering.steer_ingress(control, self.name, scope)
        return track

    def _stop(self) -> None:
        if self._player is not None:
            self._player.stop()
            self._player = None


def chain(direction: Direction, wanted: Apply) -> list[Layer]:
    """The qdiscs for a direction, from the root down."""
    if direction.trace is None:
        return netem.layers(direction, wanted.bucket)
    return player.chain(direction, wanted.offset_s)


def _refuse_unless_it_carries(name: str, address: str) -> None:
    """Raises QdiscError where the interface is this host's loopback, or has not that address."""
    index = qdisc.index_of(name)
    with IPRoute() as ip:
        (link,) = ip.get_links(index)
        carried = [
            entry.get_attr("IFA_LOCAL") or entry.get_attr("IFA_ADDRESS") for entry in ip.get_addr(index=index)
        ]
    if link["flags"] & _IFF_LOOPBACK:
        raise QdiscError(
            f"{name} is this host's loopback, which is not shaped, for everything here uses it: give the host a data "
            "address on the link to the other one"
        )
    if parse(address) not in {parse(each) for each in carried if each}:
        has = ", ".join(carried) or "none"
        raise QdiscError(
            f"{name} does not carry the data address {address} (it has {has}) and is not shaped: name the interface "
            "that does, or none"
        )
