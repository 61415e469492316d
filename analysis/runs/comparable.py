"""The facts that make runs comparable, by their manifests: no other place says which these are.

Joined runs, and the testbeds of one, are pooled where they have the same facts (`setups`). A run goes on where what was
`made` for it is exactly the same. Weights and noise that are drawn take as long whatever the seed.
"""

from __future__ import annotations

import string
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, count, product
from typing import TYPE_CHECKING, Any

from pareto.analysis.naming import SIMULATED, some
from pareto.analysis.runs.manifest import section, sessions, within
from pareto.protocol.errors import UserError
from pareto.sweep.options import FIELDS, PHASES

if TYPE_CHECKING:
    import pandas as pd  # a run that begins compares its manifest with another's, and does not wait for pandas

Fact = tuple[str, str]
"""The subject of a fact (a host's role, a model, a profile; empty: the run), and its name."""
Facts = dict[Fact, Any]
"""Values that can be told apart: of what has parts, their paths and values."""
Trials = tuple[str, str, str, str, int]
KEY = ["run", "testbed", "model", "netem", "batch_size"]
"""The columns that decide a trial's setup; `Trials` are their values."""
LABEL_LIMIT = 24
NOT_RECORDED, NOT_SET = "not recorded", "not set"
OPTIONS = ("edge_cpu", "threads", "slow_start_after_idle", "shape_at", "quick", *PHASES)
IN_FORCE = {"congestion": "congestion_control", "initial_window": "initial_window_segments"}
"""Options, and where the testbed reports what was in force: to ask for what is usual anyway changes nothing."""
TUNING, HARDWARE = ("torch", "threads", "governor", "cuda"), ("cpu", "device", "machine")
"""Facts of a host."""
_ELSEWHERE = (
    *("models", "netems", "backends", "points", "batch_sizes", "allocators", "depths", "prefetch"),
    *("testbed", "device", "hosts", *OPTIONS, *IN_FORCE),
)
"""Options whose differences are told by other facts, or show in what only one run has."""
_PASSING = (
    *("pid", "idle_power_w", "sensors", "energy_leaves_out", "energy_least_s", "swap_bytes", "uuid", "index"),
    *("findings", "links", "data_address", "data_interface", "address", "interface"),
)
"""Facts that change from one start of a host to the next, or say nothing of its speed."""
_MOST = 4
"""Parts of a value that are shown where it differs."""


def setups(
    manifests: Mapping[str, Mapping[str, Any]], trials: pd.DataFrame
) -> tuple[dict[Trials, str], list[str]]:
    """The setup of the trials of each `KEY` that have one, by the runs' manifests (by the run's name; empty: there is
    none); and what tells them apart, a line each.

    A setup is called after the one setting that tells it from the others (`edge_cpu=0.25`), those of a single run after
    their testbeds (`testbed=lab1+lab3`); where that does not do, by a letter: the same one for all trials that have the
    settings of the same earlier run. A run without a manifest is a setup of its own.
    Setups of simulated runs are called `simulated`, too. Raises UserError where these are joined with real ones.
    """
    kinds = _kinds(trials)
    simulated = [run for run, manifest in manifests.items() if manifest.get(SIMULATED)]
    if real := [run for run in manifests if simulated and run not in simulated]:
        raise UserError(
            f"simulated runs ({some(simulated)}) are not joined with real ones ({some(real)}): report on them apart"
        )
    apart: dict[Trials, Facts] = {}
    if len(manifests) > 1 or (all(manifests.values()) and len({kind[1] for kind in kinds}) > 1):
        known = {kind: _comparable(manifests[kind[0]], *kind[1:]) for kind in kinds if manifests[kind[0]]}
        unlike = differing(known.values())
        for kind in kinds:
            facts = known.get(kind, {("", "manifest.json"): f"missing in {kind[0]}"})
            if own := {fact: facts[fact] for fact in (unlike if kind in known else facts) if fact in facts}:
                apart[kind] = own
    labels, notes = _labels(apart, of_one_run=len(manifests) == 1) if apart else ({}, [])
    if simulated:
        labels = {kind: f"{SIMULATED} {labels.get(kind, '')}".strip() for kind in kinds}
    return labels, notes


def with_setup(rows: pd.DataFrame, labels: Mapping[Trials, str]) -> pd.DataFrame:
    """The rows (trials, stages, or what a search struck off) with `setup`, empty text where nothing differs."""
    import numpy as np
    import pandas as pd

    setup = pd.Series("", index=rows.index, dtype="str")
    if labels:
        keyed = rows
        if "testbed" not in rows:  # a search has one
            keyed = rows.assign(testbed=rows["run"].map({kind[0]: kind[1] for kind in labels}).fillna(""))
        each = np.array([labels.get(kind, "") for kind in _kinds(keyed)], dtype=object)
        setup = pd.Series(each[keyed.groupby(KEY, sort=False).ngroup()], index=rows.index, dtype="str")
    return rows.assign(setup=setup)


def _kinds(rows: pd.DataFrame) -> list[Trials]:
    return list(rows[KEY].drop_duplicates().itertuples(index=False, name=None))


def _labels(apart: Mapping[Trials, Facts], *, of_one_run: bool) -> tuple[dict[Trials, str], list[str]]:
    """The setups of trials by what tells these apart, and a line on each fact that setups are not named after."""
    alike = {kind: (kind[2:], *facts.items()) for kind, facts in apart.items()}
    choices: dict[Fact | None, dict[Trials, str]]
    if of_one_run:
        beds = grouped((same, kind[1]) for kind, same in alike.items())
        choices = {None: {kind: f"testbed={'+'.join(sorted(beds[same]))}" for kind, same in alike.items()}}
    else:
        choices = {
            fact: {
                kind: f"{title(fact)}={words(facts.get(fact, NOT_RECORDED))}" for kind, facts in apart.items()
            }
            for fact in next(iter(apart.values()))
        }
    tell = [
        (naming, labels)
        for naming, labels in choices.items()
        if len({(kind[2:], label) for kind, label in labels.items()}) == len(set(alike.values()))
        and max(map(len, labels.values())) <= LABEL_LIMIT
    ]
    naming, labels = tell[0] if tell else (None, _lettered(alike))
    what = "testbeds" if of_one_run else "runs"
    members = grouped((label, kind[1] if of_one_run else kind[0]) for kind, label in labels.items())
    each = "; ".join(f"{label}: {some(names)}" for label, names in members.items())
    others = [fact for fact in dict.fromkeys(chain.from_iterable(apart.values())) if fact != naming]
    notes = told(others, [(labels[kind], facts) for kind, facts in apart.items()])
    return labels, [f"settings differ, so these {what} are not pooled: {each}", *notes]


def _lettered(alike: Mapping[Trials, Any]) -> dict[Trials, str]:
    """A letter for each of them, the same one for what the same earlier run has: a, b, ..., z, aa, ab, ..."""
    first: dict[Any, tuple[str, str]] = {}
    earliest = {kind: first.setdefault(same, kind[:2]) for kind, same in alike.items()}
    letters = ("".join(each) for n in count(1) for each in product(string.ascii_lowercase, repeat=n))
    letter = dict(zip(dict.fromkeys(earliest.values()), letters, strict=False))
    return {kind: letter[run] for kind, run in earliest.items()}


def _comparable(manifest: Mapping[str, Any], testbed: str, model: str, netem: str, batch_size: int) -> Facts:
    """The facts that decide what trials of a model, network and batch size measure on a testbed."""
    run = chosen(manifest, testbed)
    # Of a GPU not its name alone.
    return run | measured(manifest, testbed) | run | made(manifest, [model], [netem], batch_size)


def chosen(manifest: Mapping[str, Any], testbed: str | None = None) -> Facts:
    """How a run was to measure, and its hosts to work."""
    sweep, each = section(manifest, "sweep"), of_testbed(manifest, testbed)
    facts: Facts = {("", name): _option(sweep, name) for name in OPTIONS}
    facts["", "threads"] = facts["", "threads"] or 1
    ahead = _option(sweep, "prefetch")  # since it is a factor, each trial has its own
    facts["", "prefetch"] = ahead if isinstance(ahead, int) else 0
    for name, fact in IN_FORCE.items():
        known = reported(each, "testbed", fact)
        facts["", name] = _option(sweep, name) if known in (None, NOT_RECORDED) else known
    facts["", "hosts"] = len(roles(each)) or _option(sweep, "hosts") or 2
    return facts | _of_hosts(each, TUNING)


def measured(manifest: Mapping[str, Any], testbed: str | None = None) -> Facts:
    """The hardware of a run's hosts, its shaper and its testbed."""
    each = of_testbed(manifest, testbed)
    return {
        **_of_hosts(each, HARDWARE),
        **{(role, "cuda"): value for (role, _), value in _of_hosts(each, ("name",), "cuda").items()},
        ("", "shaper"): reported(each, "testbed", "shaper"),
        ("", "testbed"): manifest.get("testbed", NOT_RECORDED),
    }


def made(
    manifest: Mapping[str, Any],
    models: Iterable[str],
    netems: Iterable[str],
    batch_size: int | None = None,
    *,
    exactly: bool = False,
) -> Facts:
    """The facts of these models, and of the profiles of these networks; for one batch size, or all.

    exactly: also of what is drawn at random and takes as long whatever it is.
    """
    facts: Facts = {}
    for name in models:
        own = _of_model(section(manifest, "models", name), batch_size, exactly)
        facts |= {(name, fact): value for fact, value in own.items()}
    for netem in netems:
        listed = within(manifest, "networks", netem)
        network = listed if listed and isinstance(listed, list) else netem.split("+")
        for number, name in enumerate(network, 1):
            profile = section(manifest, "profiles", str(name))
            content = {key: value for key, value in profile.items() if key != "name"}
            facts[f"profile {netem}", f"link {number}"] = _plain(content) or NOT_RECORDED
    return facts


def remarks(manifest: Mapping[str, Any]) -> Facts:
    """The other facts that a run records of how it was made."""
    sweep, each = section(manifest, "sweep"), sessions(manifest)
    fields = [field for field in dict.fromkeys([*FIELDS, *sweep]) if field not in _ELSEWHERE]
    facts: Facts = {
        ("", FIELDS[field].key if field in FIELDS else field): _option(sweep, field) for field in fields
    }
    facts["", "pareto"] = _plain(manifest.get("pareto", NOT_RECORDED))
    facts |= {
        ("", f"backend {name}"): _plain(text) for name, text in section(manifest, "own_backends").items()
    }
    elsewhere = {"testbed": ("shaper", *IN_FORCE.values()), "hosts": (*TUNING, *HARDWARE), "driver": ()}
    for keys in (["testbed"], *(["hosts", role] for role in roles(each)), ["driver"]):
        for name in dict.fromkeys(name for session in each for name in section(session, *keys)):
            if name not in (*_PASSING, *elsewhere[keys[0]]):
                facts[keys[-1], name] = reported(each, *keys, name)
    return facts


def asked(manifest: Mapping[str, Any]) -> Facts:
    """The hosts that the file of a run's testbed names."""
    return {("", "hosts of the testbed"): _plain(manifest.get("testbed_hosts", NOT_RECORDED))}


def of_testbed(manifest: Mapping[str, Any], testbed: str | None) -> list[Any]:
    """The records of a run's sessions on one testbed, or all; also those of earlier versions, which had one."""
    named = (None, "", testbed)
    return [one for one in sessions(manifest) if testbed is None or within(one, "testbed_name") in named]


def roles(each: Sequence[Any]) -> list[str]:
    """The roles of the hosts in these sessions."""
    return list(dict.fromkeys(role for session in each for role in section(session, "hosts")))


def reported(each: Sequence[Any], *keys: str) -> Any:
    """The value that a run's sessions report under these keys; where they differ, all values as text."""
    *above, name = keys
    every = (section(session, *above) for session in each)
    values = list(dict.fromkeys(_plain(facts[name]) for facts in every if name in facts))
    return " then ".join(shown(values)) if len(values) > 1 else values[0] if values else NOT_RECORDED


def _of_hosts(each: Sequence[Any], names: Iterable[str], *above: str) -> Facts:
    """The facts of the hosts, also where nothing is recorded of them."""
    every = roles(each) or ("edge", "server")
    return {(role, name): reported(each, "hosts", role, *above, name) for name in names for role in every}


def differing(each: Collection[Facts]) -> list[Fact]:
    """The facts that have several values, where they are known."""
    every = dict.fromkeys(fact for facts in each for fact in facts)
    return [fact for fact in every if len({facts[fact] for facts in each if fact in facts}) > 1]


def recorded(facts: Facts) -> Facts:
    """The facts without those of which nothing is recorded."""
    return {fact: value for fact, value in facts.items() if value != NOT_RECORDED}


def told(facts: Iterable[Fact], sides: Sequence[tuple[str, Facts]]) -> list[str]:
    """A line on each fact, with its values and the names of the sides that have them; hosts, or models, that have the
    same share one."""
    lines: dict[tuple[bool, str, str], list[str]] = {}
    for of, name in facts:
        having = [(side, known[of, name]) for side, known in sides if (of, name) in known]
        pairs = zip(shown([value for _, value in having]), (side for side, _ in having), strict=True)
        text = "; ".join(f"{value} in {some(names)}" for value, names in grouped(pairs).items())
        lines.setdefault((bool(of), name, text), []).append(of)
    return [f"{title((' and '.join(each), name))}: {text}" for (_, name, text), each in lines.items()]


def title(fact: Fact) -> str:
    """`edge cpu`, `shaper`."""
    return " ".join(fact).strip()


def shown(values: Sequence[Any]) -> list[str]:
    """The values in words: of those with parts, what is not the same in all of them."""
    common = set.intersection(*(set(value) if isinstance(value, tuple) else set() for value in values))
    return [words(value, common, _MOST) for value in values]


def words(value: Any, common: Collection[Any] = (), most: int | None = None) -> str:
    """A value in words: of its parts the first ones that are not common to others."""
    if isinstance(value, tuple):
        parts = [f"{path} {words(part)}" for path, part in value if (path, part) not in common]
        more = len(parts[most:]) if most else 0
        return ", ".join(parts[:most]) + (f" and {more} more" if more else "") or NOT_SET
    if value is None:
        return NOT_SET
    text = f"{value:.12g}" if isinstance(value, float) else str(value)
    return text[:8] if len(text) == 64 and set(text) <= set(string.hexdigits) else text


def grouped(pairs: Iterable[tuple[Any, str]]) -> dict[Any, list[str]]:
    """The second of each pair, each once, by the first."""
    groups: dict[Any, list[str]] = defaultdict(list)
    for one, other in dict.fromkeys(pairs):
        groups[one].append(other)
    return groups


def _option(sweep: Mapping[str, Any], field: str) -> Any:
    """An option's value; a version that does not have the option does what it does by default."""
    usual = FIELDS[field].default if field in FIELDS and sweep else NOT_RECORDED
    return _plain(sweep.get(field, usual))


def _of_model(model: Mapping[str, Any], batch_size: int | None, exactly: bool) -> dict[str, Any]:
    """The facts of a model by their names."""
    data = section(model, "dataset")
    inputs = section(data, "inputs")
    drawn = model.get("weights") == "seeded" and not exactly
    images = "images" if data.get("name") == "synthetic" and not exactly else "digest"
    points = (
        (str(number), f"{within(cut, 'name')} ({within(cut, 'payload_bytes')} bytes)")
        for number, cut in enumerate(model.get("points") or ())
    )
    facts: dict[str, Any] = {
        "graph": model.get("graph_digest", NOT_RECORDED),
        "weights": "seeded" if drawn else model.get("weights_digest", NOT_RECORDED),
        "source": model.get("source_digest", None if model else NOT_RECORDED),
        "input": model.get("input", NOT_RECORDED),
        "input shape": _plain(model.get("input_shape", NOT_RECORDED)),
        "dataset": data.get("name") or NOT_RECORDED,
        "points": tuple(points) or NOT_RECORDED,  # cut elsewhere, the same number is another one
    }
    for size in inputs if batch_size is None else [str(batch_size)]:
        facts[f"images at batch size {size}"] = _plain(section(inputs, size).get(images, NOT_RECORDED))
    if exactly:
        facts["data"] = _plain({key: value for key, value in data.items() if key not in ("name", "inputs")})
    for codec, own in section(model, "own_codecs").items():
        facts |= {f"codec {codec} {what}": within(own, f"{what}_digest") for what in ("source", "weights")}
        facts[f"codec {codec} points"] = _plain(within(own, "points")) if exactly else None
    return facts


def _plain(value: Any) -> Any:
    """A value that can be told apart from others: a list as text, a mapping as paths such as `there.delay_s` and
    values."""
    if not isinstance(value, Mapping):
        return ",".join(map(str, value)) if isinstance(value, list | tuple) else value
    parts = {str(key): _plain(part) for key, part in value.items() if key not in _PASSING}
    return tuple(
        leaf
        for key, part in parts.items()
        for leaf in (
            [(f"{key}.{path}", each) for path, each in part] if isinstance(part, tuple) else [(key, part)]
        )
    )
