"""What two runs were made with, as far as it differs: a line each, what makes the comparison doubtful first."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from analysis.engines import EAGER
from analysis.runs.manifest import leaves, section, sessions, within
from analysis.runs.setups import NOT_RECORDED, NOT_SET
from pareto.options import FIELDS

DOUBTFUL = "attention: "
_SHOWN_ELSEWHERE = frozenset(
    [
        "models",
        "netems",
        "backends",
        "points",
        "batch_sizes",
        "engines",
        "allocators",
        "depths",
        "prefetch",
        "testbed",
        "device",
    ]
)
"""Options whose differences show in what only one run has, in the testbed, and in the hosts."""
_OF_MODEL = {
    "weights_digest": "weights",
    "graph_digest": "graph",
    "source_digest": "source file",
    "dataset": "input data",
    "input": "input type",
    "input_shape": "input shape",
}
_HARDWARE = ("machine", "cpu", "device", "cuda.name")
"""What makes a host another one."""
_PASSING = ("pid", "idle_power_w", "sensors", "swap_bytes", "cuda.uuid", "cuda.index")
"""What is not the same from one start of a host to the next, or says nothing of its speed."""
_PLACES = ("links", "data_address", "data_interface", "address", "interface", "findings")
_MOST = 4
"""Differences within one line."""

Line = tuple[bool, str, str]
"""Whether it makes the comparison doubtful, what differs, and in what; empty where nothing does."""


def differences(
    first: Mapping[str, Any], other: Mapping[str, Any], models: Collection[str], networks: Collection[str]
) -> list[str]:
    """What two manifests differ in, a line each, about the models and networks that both runs have.

    The runs are called A and B. Lines that begin with `DOUBTFUL` come first: something else was measured, with other
    weights, another graph, other cuts under a point's number, another profile under the same name, another testbed or
    processor. A manifest that is missing is named as such; what only one of them records of a model, a host or the
    driver is no difference, nor is an option that one of them does not have and the other leaves at its default.
    """
    if missing := [name for name, manifest in (("A", first), ("B", other)) if not manifest]:
        return [
            f"{DOUBTFUL}{' and '.join(missing)} {'have' if len(missing) > 1 else 'has'} no manifest that can be read: "
            "what else differs is not known"
        ]
    both = (first, other)
    lines = [line for name in sorted(models) for line in _of_model(name, both)]
    profiles = [section(manifest, "profiles") for manifest in both]
    # A chain's network has a profile for each link.
    names = dict.fromkeys(profile for network in sorted(networks) for profile in network.split("+"))
    lines += [(True, f"profile {name}", _differs(profiles, name, NOT_SET)) for name in names]
    for key, what in (("testbed", "testbed"), ("testbed_hosts", "hosts of the testbed")):
        lines.append((True, what, _differs(both, key, NOT_SET)))
    for key, values in _changed(both, "testbed"):
        lines.append((key == "shaper", "testbed", f"{key} {values}"))
    if silent := [name for name, manifest in zip("AB", both, strict=True) if not _reports(manifest, "hosts")]:
        lines.append((False, " and ".join(silent), "nothing recorded of the hosts"))
    lines += _of_hosts(both)
    sweeps = [section(manifest, "sweep") for manifest in both]
    one, two = (_text(sweep.get("engines") or [EAGER]) for sweep in sweeps)
    lines.append((False, "--engine", f"{one} in A, {two} in B" if one != two else ""))
    for key in dict.fromkeys(chain(*sweeps)):
        if key in _SHOWN_ELSEWHERE:
            continue
        one, two = (_text(sweep[key]) if key in sweep else NOT_RECORDED for sweep in sweeps)
        option = FIELDS.get(key)
        # A version that does not have an option does what it does by default.
        usual = {NOT_RECORDED, _text(option.default)} if option is not None else set()
        if one != two and {one, two} != usual:
            lines.append(
                (False, option.typed if option is not None else f"--{key}", f"{one} in A, {two} in B")
            )
    lines.append((False, "pareto", _differs(both, "pareto")))
    for key, values in _changed(both, "driver"):
        lines.append((False, "driver", f"{key.removeprefix('packages.')} {values}"))
    doubts_first = sorted(lines, key=lambda line: not line[0])
    return [f"{DOUBTFUL * doubtful}{what}: {words}" for doubtful, what, words in doubts_first if words]


def _of_model(name: str, both: Sequence[Mapping[str, Any]]) -> Iterator[Line]:
    records = [section(manifest, "models", name) for manifest in both]
    # Drawn from other seeds they take as long.
    alike = {
        "weights_digest": all(model.get("weights") == "seeded" for model in records),
        "dataset": all(within(model, "dataset", "name") == "synthetic" for model in records),
    }
    for key, what in _OF_MODEL.items():
        yield not alike.get(key), f"{what} of {name}", _differs(records, key)
    for number, cuts in enumerate(zip(*(model.get("points") or () for model in records), strict=False)):
        one, two = (f"{within(cut, 'name')} ({within(cut, 'payload_bytes')} bytes)" for cut in cuts)
        if one != two:
            yield True, f"{name} is cut elsewhere", f"point {number} is {one} in A, {two} in B"
            break


def _of_hosts(both: Sequence[Mapping[str, Any]]) -> Iterator[Line]:
    """Each fact with its hosts, as on most testbeds all differ in the same."""
    facts: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path, values in _changed(both, "hosts"):
        role, _, fact = path.partition(".")
        if not fact.startswith(_PASSING):
            facts[fact, values].append(role)
    for (fact, values), roles in facts.items():
        yield fact in _HARDWARE, " and ".join(roles), f"{fact} {values}"


def _reports(manifest: Mapping[str, Any], key: str) -> dict[str, str]:
    """What the sessions of a run report under a key, by its path; several values where they do not agree."""
    values: dict[str, dict[str, None]] = defaultdict(dict)
    for session in sessions(manifest):
        for path, value in leaves(section(session, key), _PLACES):
            values[path][_text(value)] = None
    return {path: " then ".join(texts) for path, texts in values.items()}


def _changed(both: Sequence[Mapping[str, Any]], key: str) -> Iterator[tuple[str, str]]:
    """What the sessions of both report under a key and does not agree: its path, and both values in words."""
    one, two = (_reports(manifest, key) for manifest in both)
    return (
        (path, f"{one[path]} in A, {two[path]} in B")
        for path in one
        if path in two and one[path] != two[path]
    )


def _differs(both: Sequence[Mapping[str, Any]], key: str, missing: str = NOT_RECORDED) -> str:
    """`rate_bps 5e+06 in A, 1e+07 in B; ...`: what two trees do not agree in under a key. Empty where they agree, and
    where one does not have the key.
    """
    if not all(key in tree for tree in both):
        return ""
    one, two = ({path: _text(value) for path, value in leaves(tree[key], _PLACES)} for tree in both)
    words = [
        f"{path} {one.get(path, missing)} in A, {two.get(path, missing)} in B".strip()
        for path in dict.fromkeys([*one, *two])
        if one.get(path, missing) != two.get(path, missing)
    ]
    more = len(words) - _MOST
    return "; ".join(words[:_MOST]) + (f"; and {more} more" if more > 0 else "")


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, str):
        # Twelve digits of a digest tell as much as all.
        return value[:12] if len(value) == 64 and value.isalnum() else value
    if isinstance(value, Sequence):
        return ",".join(map(_text, value))
    return json.dumps(value) if isinstance(value, Mapping) else str(value)
