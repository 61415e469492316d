"""From a command line to a sweep: a file, options over it, or the settings of the run that is resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pareto import spec
from pareto.hosts.inventory import THIS_MACHINE
from pareto.link.profile import Profile
from pareto.spec import SpecError, Sweep
from pareto.store import StoreError

QUICK_TRIALS = 1
ENDING = ("until", "budget")
"""What decides how long a run goes on, not what it measures."""
_AS_IT_WAS = {"input": "float32", "only": True}
"""What a run was made with that is older than the option."""


def run_folder(run: Path, out: Path) -> Path:
    """A run given as a path or as the name of a folder in `out`. Raises StoreError."""
    for folder in (run, out / run):
        if (folder / "manifest.json").exists():
            return folder
    raise StoreError(f"there is no run {run}: give its folder, such as {out.name}/<run>")


def sweep(file: Path | None, options: dict[str, Any], resumed: Path | None) -> Sweep:
    """What was asked for, checked. Raises SpecError, link.profile.ProfileError."""
    if resumed is not None:
        return _resumed(file, options, resumed)
    fields = spec.read_file(file) if file is not None else {}
    if file is not None:
        spec.parsed({"model": "any", **fields}, str(file))  # so that a fault in the file is told as such
    fields |= options
    if fields.get("quick") and fields.get("until") is None:  # before as many rounds as usual nothing is sure
        fields.setdefault("trials", QUICK_TRIALS)
    return spec.sweep(fields)


def links(sweep: Sweep) -> int:
    """How many links the testbed that was asked for has. Raises TestbedError for a file that names too few hosts."""
    if sweep.testbed == THIS_MACHINE or sweep.simulated:
        return (sweep.hosts or 2) - 1
    from pareto.hosts import testbeds

    return testbeds.size(sweep.testbed) - 1


def networks_to_check(sweep: Sweep) -> list[tuple[Profile, ...]]:
    """Each network's profiles, one a link. Where nobody said how many hosts, there are as many as the longest needs.

    Raises as `links` and `spec.profiles`.
    """
    if sweep.testbed == THIS_MACHINE and sweep.hosts is None:
        many = max(len(spec.profiles(name)) for name in sweep.netems)
    else:
        many = links(sweep)
    return [spec.profiles(name, many) for name in sweep.netems]


def _resumed(file: Path | None, options: dict[str, Any], folder: Path) -> Sweep:
    if file is not None:
        raise SpecError("--resume takes its settings from the run: leave the sweep file out")
    recorded = _AS_IT_WAS | json.loads((folder / "manifest.json").read_text())["sweep"]
    begun = spec.sweep(recorded)
    asked = spec.parsed({"model": begun.models, **options})
    from pareto.prepare import canonical
    from partitions.registry import UnknownModel

    try:
        asked = canonical(asked)
    except UnknownModel as error:
        raise SpecError(str(error)) from None
    keys = {field.alias or name: name for name, field in Sweep.model_fields.items()}
    for option in (option for option in options if option not in ENDING):
        then, now = (getattr(which, keys[option]) for which in (begun, asked))
        if then != now:
            raise SpecError(
                f"{folder} was made with other settings: {option} was {_shown(then)}, not {_shown(now)}; "
                "leave the option out, or start a new run"
            )
    return begun.model_copy(update={option: getattr(asked, option) for option in ENDING if option in options})


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
