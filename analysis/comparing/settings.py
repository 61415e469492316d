"""What two runs were made with, as far as it differs: a line each, what makes the comparison doubtful first."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from analysis.runs.manifest import leaves, section, sessions, within
from analysis.runs.setups import NOT_SET, NOT_TOLD

DOUBTFUL = "attention: "
_SHOWN_ELSEWHERE = ("models", "netems", "backends", "points", "batch_sizes", "depths", "testbed")
"""Options whose differences show in what only one run has, and in the testbed."""
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

Line = tuple[bool, str]
"""Whether it makes the comparison doubtful, and what to say."""


def differences(
    first: Mapping[str, Any], other: Mapping[str, Any], models: Collection[str], profiles: Collection[str]
) -> list[str]:
    """What two manifests differ in, a line each, about the models and profiles (networks) that both runs have.

    The runs are called A and B. Lines that begin with `DOUBTFUL` come first: something else was measured, with other
    weights, another graph, other cuts under a point's number, another profile under the same name, another testbed or
    processor. A manifest that is missing, or older than a key, is named as such and is no difference.
    """
    if missing := [name for name, manifest in (("A", first), ("B", other)) if not manifest]:
        return [
            f"{DOUBTFUL}{' and '.join(missing)} {'have' if len(missing) > 1 else 'has'} no manifest that can be read: "
            "what else differs is not known"
        ]
    lines = [
        *_model_lines(first, other, models),
        *_profile_lines(first, other, profiles),
        *_testbed_lines(first, other),
        *_host_lines(first, other),
        *_option_lines(first, other),
        *_version_lines(first, other),
    ]
    return [DOUBTFUL + text for doubtful, text in lines if doubtful] + [
        text for doubtful, text in lines if not doubtful
    ]


def _model_lines(
    first: Mapping[str, Any], other: Mapping[str, Any], names: Collection[str]
) -> Iterator[Line]:
    for name in sorted(names):
        both = [section(manifest, "models", name) for manifest in (first, other)]
        # Drawn from other seeds they take as long.
        alike = {
            "weights_digest": all(model.get("weights") == "seeded" for model in both),
            "dataset": all(within(model, "dataset", "name") == "synthetic" for model in both),
        }
        for key, what in _OF_MODEL.items():
            if words := _differs(both[0], both[1], key):
                yield not alike.get(key), f"{what} of {name}: {words}"
        for number, cuts in enumerate(zip(*(model.get("points") or () for model in both), strict=False)):
            at = [f"{within(cut, 'name')} ({within(cut, 'payload_bytes')} bytes)" for cut in cuts]
            if at[0] != at[1]:
                yield True, f"{name} is cut elsewhere: point {number} is {at[0]} in A, {at[1]} in B"
                break


def _profile_lines(
    first: Mapping[str, Any], other: Mapping[str, Any], networks: Collection[str]
) -> Iterator[Line]:
    one, two = (section(manifest, "profiles") for manifest in (first, other))
    # A chain's network has a profile for each link.
    for name in dict.fromkeys(profile for network in sorted(networks) for profile in network.split("+")):
        if words := _differs(one, two, name, missing=NOT_SET):
            yield True, f"profile {name}: {words}"


def _testbed_lines(first: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[Line]:
    for key, what in (("testbed", "testbed"), ("testbed_hosts", "hosts of the testbed")):
        if words := _differs(first, other, key, missing=NOT_SET):
            yield True, f"{what}: {words}"
    for key, one, two in _changed(_reports(first, "testbed"), _reports(other, "testbed")):
        yield key == "shaper", f"testbed: {key} {one} in A, {two} in B"


def _host_lines(first: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[Line]:
    """Each fact with its hosts, as on most testbeds all differ in the same."""
    both = [_reports(manifest, "hosts") for manifest in (first, other)]
    if silent := [name for name, facts in zip("AB", both, strict=True) if not facts]:
        yield False, f"{' and '.join(silent)}: nothing recorded of the hosts"
    facts: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for path, one, two in _changed(*both):
        role, _, fact = path.partition(".")
        if not fact.startswith(_PASSING):
            facts[fact, one, two].append(role)
    for (fact, one, two), roles in facts.items():
        yield fact in _HARDWARE, f"{' and '.join(roles)}: {fact} {one} in A, {two} in B"


def _option_lines(first: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[Line]:
    both = [section(manifest, "sweep") for manifest in (first, other)]
    for key in dict.fromkeys(chain(*both)):
        one, two = (_text(sweep[key]) if key in sweep else NOT_TOLD for sweep in both)
        if key not in _SHOWN_ELSEWHERE and one != two:
            yield False, f"--{key.replace('_', '-')}: {one} in A, {two} in B"


def _version_lines(first: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[Line]:
    if words := _differs(first, other, "pareto"):
        yield False, f"pareto: {words}"
    for key, one, two in _changed(_reports(first, "driver"), _reports(other, "driver")):
        yield False, f"driver: {key.removeprefix('packages.')} {one} in A, {two} in B"


def _reports(manifest: Mapping[str, Any], key: str) -> dict[str, str]:
    """What the sessions of a run report under a key, by its path; several values where they do not agree."""
    values: dict[str, dict[str, None]] = defaultdict(dict)
    for session in sessions(manifest):
        for path, value in leaves(section(session, key), _PLACES):
            values[path][_text(value)] = None
    return {path: " then ".join(texts) for path, texts in values.items()}


def _changed(one: Mapping[str, str], two: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """What both report and does not agree: path and the two values. What one does not report is not seen to differ."""
    return ((path, one[path], two[path]) for path in one if path in two and one[path] != two[path])


def _differs(first: Mapping[str, Any], other: Mapping[str, Any], key: str, *, missing: str = NOT_TOLD) -> str:
    """`rate_bps 5e+06 in A, 1e+07 in B; ...`: what two trees do not agree in under a key. Empty where they agree, and
    where one does not have the key: an older version did not report it.
    """
    if key not in first or key not in other:
        return ""
    one, two = ({path: _text(value) for path, value in leaves(tree[key], _PLACES)} for tree in (first, other))
    paths = [path for path in dict.fromkeys([*one, *two]) if one.get(path, missing) != two.get(path, missing)]
    words = [f"{path} {one.get(path, missing)} in A, {two.get(path, missing)} in B".strip() for path in paths]
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
