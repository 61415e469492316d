"""The work of all hosts' codecs in a trial, request by request: their times, and the bytes that they sent."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

from pareto.protocol.trial_messages import Coded, Requests, TrialReport, Usage
from pareto.trial.store import Row

PACKET_BYTES, MORE_SENT, MORE_A_REQUEST_BYTES, MORE_BYTES = 1600, 1.1, 4096, 64 << 10
"""A codec's bytes on the interface: headers of packets, a backend's own messages, acknowledgements, and the monitor."""
TIMES = ("encode_s", "decode_s")
_Requests = TypeVar("_Requests", bound=Requests)


@dataclass(frozen=True)
class CodecWork:
    """The work of each host's codec, by role, for each request; no hosts where the trial has no codec.

    first: how many requests are the latency phase's, which come first. closed: how many are that's and the throughput
    phase's, which comes then; None: all.
    """

    hosts: Mapping[str, Coded]
    first: int
    closed: int | None = None

    @cached_property
    def least_s(self) -> dict[str, float]:
        """By role, what its codec takes for a request, but for the result: the lesser of both phases' medians."""
        return {role: self._least_s(_both_s(coded)) for role, coded in self.hosts.items()}

    @cached_property
    def least_result_s(self) -> float:
        """The same of decoding the result; 0 where it comes as it is."""
        return sum(self._least_s(coded.result_s) for coded in self.hosts.values())

    def least_apart_s(self, role: str) -> tuple[float, float]:
        """The same of a host that has a codec: decoding, encoding."""
        coded = self.hosts[role]
        return self._least_s(coded.decode_s), self._least_s(coded.encode_s)

    def _least_s(self, each: Sequence[float]) -> float:
        return min(statistics.median(phase) for phase in (each[: self.first], each[self.first : self.closed]))

    def times_s(self, name: str) -> list[float]:
        """Seconds of all hosts together for each request. name: `encode_s` or `decode_s`."""
        columns = (_each_s(coded, name) for coded in self.hosts.values())
        return [sum(each) for each in zip(*columns, strict=True)]

    def _median(self, each: Sequence[float]) -> float | None:
        """The median of the latency phase's requests; None where there are none, as without a codec."""
        return statistics.median(each[: self.first]) if each else None

    def wire_bytes(self, role: str) -> float | None:
        """The bytes that a host sends of a request's payload, as `_median`."""
        return self._median(self.each_wire_bytes(role))

    def each_wire_bytes(self, role: str) -> list[float]:
        """The bytes that a host sends of each request's payload in the latency phase; empty without a codec."""
        return [*map(float, self.hosts[role].wire_bytes[: self.first])] if role in self.hosts else []

    @property
    def results(self) -> tuple[str, list[int]]:
        """The last host that has a codec, and the bytes of each result that it encoded; empty where it did not."""
        role = next(reversed(list(self.hosts)), "")
        sent = self.hosts[role].wire_bytes if len(self.hosts) > 1 else []
        return (role, sent) if any(sent) else ("", [])

    def least_wire_bytes(self, role: str) -> float | None:
        """The least that a host sends in both phases, for a bound; None without a codec."""
        if role not in self.hosts:
            return None
        sent = self.hosts[role].wire_bytes
        return min(statistics.median(sent[: self.first]), statistics.fmean(sent[self.first : self.closed]))

    def alone(self, rests_s: Sequence[float]) -> list[float]:
        """Seconds left of `rests_s`, some figure of each request of the latency phase, without all codecs' times."""
        if not self.hosts:
            return list(rests_s)
        taken = zip(*(self.times_s(name)[: self.first] for name in TIMES), strict=True)
        return [rest - sum(both) for rest, both in zip(rests_s, taken, strict=True)]

    def trial_columns(self) -> Row:
        return {name: self._median(self.times_s(name)) for name in TIMES}

    def stage_columns(self, role: str, *, sends: bool) -> Row:
        """The columns of a host in stages.csv. sends: whether it sends anything on."""
        coded = self.hosts.get(role)
        times = {name: self._median(_each_s(coded, name) if coded else ()) for name in TIMES}
        return {**times, "wire_bytes": self.wire_bytes(role) if sends else None}

    def request_columns(self, edge: str, requests: slice) -> dict[str, list[Any]]:
        """The columns of the requests' file for some of the requests; none without a codec."""
        if edge not in self.hosts:
            return {}
        times: dict[str, list[Any]] = {name: self.times_s(name)[requests] for name in TIMES}
        return {**times, "wire_bytes": list(self.hosts[edge].wire_bytes[requests])}


def _each_s(coded: Coded, name: str) -> list[float]:
    """Seconds of one host for each request, of decoding also that of the result. name: `encode_s` or `decode_s`."""
    columns = (coded.encode_s,) if name == "encode_s" else (coded.decode_s, coded.result_s)
    return [sum(each) for each in zip(*columns, strict=True)]


def _both_s(coded: Coded) -> list[float]:
    return [sum(both) for both in zip(coded.decode_s, coded.encode_s, strict=True)]


def without_codecs(report: TrialReport, later: Sequence[Usage]) -> TrialReport:
    """The edge's report with the later hosts' codecs taken out of the times of their stages, request by request: a
    reply says no more than the sum of both."""
    codec_s = [_both_s(usage.coded) for usage in later if usage.coded is not None]
    if not codec_s:
        return report

    def apart(phase: _Requests, first: int) -> _Requests:
        return replace(
            phase,
            stages_s=[
                tuple(
                    max(0.0, whole - codec_s[place][first + number]) if place < len(codec_s) else whole
                    for place, whole in enumerate(stages_s)
                )
                for number, stages_s in enumerate(phase.stages_s)
            ],
        )

    phases = report.requests
    lone, first = apart(phases.latency, 0), len(phases.latency)
    phases = replace(phases, latency=lone, throughput=apart(phases.throughput, first))
    if (load := phases.load) is not None:
        closed = first + len(phases.throughput)
        phases = replace(phases, load=replace(load, requests=apart(load.requests, closed)))
    stages_s = tuple(max(1e-9, statistics.median(each)) for each in zip(*lone.stages_s, strict=True))
    return replace(report, requests=phases, stages_s=stages_s)


def too_many_bytes(
    what: str, counted: int | None, each: Sequence[int], warm_ups: int = 0, retransmits: int | None = 0
) -> Iterator[str]:
    """A fault, in words: a codec that says it sends less than it does would win by a lie. what: interface and verb.
    counted: bytes there. each: by the codec, of each request; nothing is known where there are none. warm_ups: requests
    before those that are timed, which the interface counted too."""
    if counted is None or not each:
        return
    sent, requests = sum(each) + warm_ups * max(each), len(each) + warm_ups
    again = PACKET_BYTES * max(0, retransmits or 0)
    most = MORE_SENT * sent + MORE_A_REQUEST_BYTES * requests + again + MORE_BYTES
    if counted > most:
        yield (
            f"the {what} {counted} bytes, {requests} requests of the codec "
            f"need {sent}: more crossed than it says, or something else used the link"
        )
