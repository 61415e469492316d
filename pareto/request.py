"""From a command line to a sweep: a file, options over it, or the settings of the run that is resumed."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pareto import profile_files, spec
from pareto.errors import UserError
from pareto.hosts.inventory import SIMULATED, THIS_MACHINE
from pareto.link.profile import Profile
from pareto.options import OLDER, OPTIONS, QUICK_TRIALS
from pareto.spec import ALONG, Sweep
from pareto.store import MANIFEST, StoreError, read_manifest

ENDING = ("until", "budget")
"""What decides how long a run goes on, not what it measures."""


def run_folder(run: Path, out: Path) -> Path:
    """A run given as a path or as the name of a folder in `out`. Raises StoreError."""
    for folder in (run, out / run):
        if (folder / "manifest.json").exists():
            return folder
    raise StoreError(f"there is no run {run}: give its folder, such as {out.name}/<run>")


def sweep(file: Path | None, options: dict[str, Any], resumed: Path | None) -> Sweep:
    """What was asked for, checked. Raises UserError, UserError."""
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


def resume_command(folder: Path, sweep: Sweep) -> str:
    """What the user types to go on with a run: its folder, and what that is not believed about."""
    given = [word for name, value in _elsewhere(sweep).items() for word in (OPTIONS[name].typed, value)]
    return " ".join(["./pareto.sh --resume", *map(shlex.quote, (str(folder), *given))])


def _resumed(file: Path | None, options: dict[str, Any], folder: Path) -> Sweep:
    """Nothing that the folder says is run, read, logged in to or imported before the user has named it too."""
    if file is not None:
        raise UserError("--resume takes its settings from the run: leave the sweep file out")
    manifest = str(folder / MANIFEST)
    begun = spec.parsed(OLDER | read_manifest(folder)["sweep"], manifest)
    elsewhere = _elsewhere(begun)
    if missing := [option for option in elsewhere if option not in options]:
        which = " and ".join(OPTIONS[option].typed for option in missing)
        raise UserError(
            f"{folder} names files or hosts, and what a folder names is neither run nor read: give {which} again, "
            f"as in {resume_command(folder, begun)}"
        )
    asked = spec.parsed({"model": begun.models, **options})
    from pareto.prepare import canonical

    try:
        asked = canonical(asked)
    except UserError as error:
        raise UserError(str(error) if "model" in options else f"{manifest}: {error}") from None
    for option in (option for option in options if option not in ENDING):
        then, now = (_by_name(option, getattr(which, OPTIONS[option].field)) for which in (begun, asked))
        if then != now:
            raise UserError(
                f"{folder} was made with other settings: {option} was {_shown(then)}, not {_shown(now)}; "
                "leave the option out, or start a new run"
            )
    taken = [option for option in options if option in (*ENDING, *elsewhere)]
    whole = begun.model_copy(
        update={OPTIONS[option].field: getattr(asked, OPTIONS[option].field) for option in taken}
    )
    try:
        return spec.checked(whole)
    except UserError as error:
        raise UserError(f"{manifest}: {error}") from None


def _elsewhere(sweep: Sweep) -> dict[str, str]:
    """The options by which a sweep names what lies outside of it: files that are run or read, and hosts."""
    values = {option: getattr(sweep, OPTIONS[option].field) for option in _OUTSIDE}
    return {option: _shown(value) for option, value in values.items() if _OUTSIDE[option](value)}


def _by_name(option: str, value: Any) -> Any:
    """What must be the same in a run that goes on. A file may have moved: what is in it is compared later."""
    if option == "model":
        from partitions.user_file import is_reference, name_of

        return tuple(name_of(model) if is_reference(model) else model for model in value)
    if option == "netem":
        return tuple(ALONG.join(_profile(part) for part in netem.split(ALONG)) for netem in value)
    return "a file" if option in _OUTSIDE and _OUTSIDE[option](value) else value


def _profile(name: str) -> str:
    return Path(name).stem if profile_files.is_file(name) else name


def _models_outside(models: tuple[str, ...]) -> bool:
    from partitions.user_file import is_reference

    return any(map(is_reference, models))


def _networks_outside(netems: tuple[str, ...]) -> bool:
    return any(profile_files.is_file(part) for netem in netems for part in (netem, *netem.split(ALONG)))


_OUTSIDE: Mapping[str, Callable[[Any], bool]] = {
    "model": _models_outside,
    "netem": _networks_outside,
    "weights": lambda source: source not in ("seeded", "pretrained"),
    "data_path": lambda path: path is not None,
    "testbed": lambda name: name not in (THIS_MACHINE, SIMULATED),
}
"""Options whose value may name a file or hosts, and whether a value does."""


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
