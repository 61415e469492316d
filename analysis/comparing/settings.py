"""What two runs were made with, as far as it differs: a line each, what makes the comparison doubtful first."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from analysis.runs.manifest import within

DOUBTFUL = "attention: "
NOT_TOLD, NOT_SET = "not told", "not set"
_SHARED = ("models", "netems", "backends", "points", "batch_sizes", "depths", "testbed")
"""Options whose differences show elsewhere: in what only one run has, and in the testbed."""
_OF_MODEL = {
    "weights_digest": "weights",
    "graph_digest": "graph",
    "source_digest": "source file",
    "dataset": "input data",
    "input": "input type",
    "input_shape": "input shape",
}
_HARDWARE = ("machine", "cpu", "device", "cuda.name")
"""Of a host: what makes it another one."""
_PASSING = ("pid", "idle_power_w", "sensors", "swap_bytes", "cuda.uuid", "cuda.index")
"""Of a host: what is not the same from one start to the next, or says nothing of its speed."""
_PLACES = ("links", "data_address", "data_interface", "address", "interface", "findings")
_MOST = 4
"""Differences within one line."""

Line = tuple[bool, str]
Leaves = dict[str, str]


def differences(
    first: Mapping[str, Any], other: Mapping[str, Any], models: Collection[str], profiles: Collection[str]
) -> list[str]:
    """Lines from two manifests about the models and profiles (networks) that both runs have; the runs are A and B.

    Those that begin with `DOUBTFUL` say that something else was measured: other weights, another graph, other cuts
    under a point's number, another profile under the same name, another testbed or processor. A manifest that is
    missing, or older than a key, is told, not taken for a difference.
    """
    missing = [name for name, manifest in (("A", first), ("B", other)) if not manifest]
    if missing:
        which = " and ".join(missing)
        return [
            f"{DOUBTFUL}{which} {'have' if len(missing) > 1 else 'has'} no manifest that can be read: "
            "what else differs is not known"
        ]
    lines = [
        *_models(first, other, models),
        *_profiles(first, other, profiles),
        *_testbed(first, other),
        *_hosts(first, other),
        *_options(first, other),
        *_versions(first, other),
    ]
    return [DOUBTFUL + text for doubtful, text in lines if doubtful] + [
        text for doubtful, text in lines if not doubtful
    ]


def _models(first: Mapping[str, Any], other: Mapping[str, Any], names: Collection[str]) -> Iterator[Line]:
    for name in sorted(names):
        one, two = (within(manifest, "models", name) or {} for manifest in (first, other))
        # Drawn from other seeds they take as long.
        drawn = one.get("weights") == two.get("weights") == "seeded"
        noise = all(within(it, "dataset", "name") == "synthetic" for it in (one, two))
        for key, what in _OF_MODEL.items():
            if words := _differs(one, two, key):
                same_kind = (key == "weights_digest" and drawn) or (key == "dataset" and noise)
                yield not same_kind, f"{what} of {name}: {words}"
        for number, cuts in enumerate(
            zip(_listed(one.get("points")), _listed(two.get("points")), strict=False)
        ):
            at = [f"{within(cut, 'name')} ({within(cut, 'payload_bytes')} bytes)" for cut in cuts]
            if at[0] != at[1]:
                yield True, f"{name} is cut elsewhere: point {number} is {at[0]} in A, {at[1]} in B"
                break


def _profiles(
    first: Mapping[str, Any], other: Mapping[str, Any], networks: Collection[str]
) -> Iterator[Line]:
    """Of a chain's network each link's profile."""
    one, two = (_mapping(manifest.get("profiles")) for manifest in (first, other))
    for name in dict.fromkeys(profile for network in sorted(networks) for profile in network.split("+")):
        if words := _differs(one, two, name, missing=NOT_SET):
            yield True, f"profile {name}: {words}"


def _testbed(first: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[Line]:
    for key, what in (("testbed", "testbed"), ("testbed_hosts", "hosts of the testbed")):
        if words := _differs(first, other, key, missing=NOT_SET):
            yield True, f"{what}: {words}"
    one, two = (_over_sessions(manifest, "testbed") for manifest in (first, other))
    for key in _both(one, two):
        if one[key] != two[key]:
            yield key == "shaper", f"testbed: {key} {one[key]} in A, {two[key]} in B"


def _hosts(first: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[Line]:
    """Each fact with the hosts of which it is told, as on most testbeds all differ in the same."""
    told = [_over_sessions(manifest, "hosts") for manifest in (first, other)]
    if silent := [name for name, leaves in zip("AB", told, strict=True) if not leaves]:
        yield False, f"{' and '.join(silent)}: nothing told of the hosts"
    found: dict[tuple[str, str, str], list[str]] = {}
    for path in _both(*told):
        role, _, fact = path.partition(".")
        if told[0][path] != told[1][path] and not fact.startswith(_PASSING):
            found.setdefault((fact, told[0][path], told[1][path]), []).append(role)
    for (fact, one, two), roles in found.items():
        yield fact in _HARDWARE, f"{' and '.join(roles)}: {fact} {one} in A, {two} in B"


def _options(first: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[Line]:
    one, two = (_mapping(manifest.get("sweep")) for manifest in (first, other))
    for key in dict.fromkeys([*one, *two]):
        values = [_text(sweep[key]) if key in sweep else NOT_TOLD for sweep in (one, two)]
        if key not in _SHARED and values[0] != values[1]:
            yield False, f"--{key.replace('_', '-')}: {values[0]} in A, {values[1]} in B"


def _versions(first: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[Line]:
    if words := _differs(first, other, "pareto"):
        yield False, f"pareto: {words}"
    one, two = (_over_sessions(manifest, "driver") for manifest in (first, other))
    for key in _both(one, two):
        if one[key] != two[key]:
            yield False, f"driver: {key.removeprefix('packages.')} {one[key]} in A, {two[key]} in B"


def _over_sessions(manifest: Mapping[str, Any], key: str) -> Leaves:
    """What the sessions of a run say under a key; several values where they do not agree."""
    found: dict[str, dict[str, None]] = {}
    for session in _listed(manifest.get("sessions")):
        for path, text in _leaves(_mapping(session).get(key)).items():
            found.setdefault(path, {})[text] = None
    return {path: " then ".join(texts) for path, texts in found.items()}


def _differs(first: Mapping[str, Any], other: Mapping[str, Any], key: str, *, missing: str = NOT_TOLD) -> str:
    """`rate_bps 5e+06 in A, 1e+07 in B; ...`: what two trees do not agree in under a key. Empty where they agree, and
    where one does not have the key: an older version did not tell.
    """
    if key not in first or key not in other:
        return ""
    one, two = _leaves(first[key]), _leaves(other[key])
    paths = [path for path in dict.fromkeys([*one, *two]) if one.get(path, missing) != two.get(path, missing)]
    words = [f"{path} {one.get(path, missing)} in A, {two.get(path, missing)} in B".strip() for path in paths]
    more = len(words) - _MOST
    return "; ".join(words[:_MOST]) + (f"; and {more} more" if more > 0 else "")


def _leaves(tree: Any, path: str = "") -> Leaves:
    """Every value within nested mappings, by its path; addresses left out."""
    if not isinstance(tree, Mapping):
        return {path: _text(tree)}
    found: Leaves = {}
    for key, value in tree.items():
        if key not in _PLACES:
            found |= _leaves(value, f"{path}.{key}" if path else str(key))
    return found


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


def _both(one: Leaves, two: Leaves) -> list[str]:
    """Only what both runs tell can be seen to differ."""
    return [path for path in one if path in two]


def _mapping(value: Any) -> Mapping[str, Any]:
    """The manifest is from a file that another version, or another hand, may have written."""
    return value if isinstance(value, Mapping) else {}


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()
