"""Reading a profile's YAML file, so that each error names the file and the line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import yaml

from pareto.errors import UserError
from pareto.link import trace_file, units
from pareto.link.profile import NETEM, NETEM_TBF, Bucket, Direction, Gilbert, Profile
from pareto.link.yaml_file import YamlFile

_Keys = Mapping[str, tuple[str, Callable[[str, str], Any]]]  # a key's field, and the reader of its text

# In an order in which each value can be judged by those before it: jitter by the delay, a limit by the rate.
_LINE: _Keys = {"delay": ("delay_s", units.delay_s), "rate": ("rate_bps", units.rate_bps)}
_PACKETS: _Keys = {
    "jitter": ("jitter_s", units.delay_s),
    "jitter_correlation": ("jitter_correlation", units.share),
    "loss": ("loss", units.share),
    "duplicate": ("duplicate", units.share),
    "reorder": ("reorder", units.share),
    "corrupt": ("corrupt", units.share),
    "limit": ("limit_bytes", units.size_bytes),
}
_GILBERT: _Keys = {key: (key, units.share) for key in ("good_to_bad", "bad_to_good", "in_bad", "in_good")}
_BUCKET: _Keys = {"burst": ("burst_bytes", units.size_bytes), "latency": ("latency_s", units.delay_s)}
_OFFSET: _Keys = {"offset": ("offset_s", units.delay_s)}
_WAYS = ("edge_to_server", "server_to_edge")

_Filled = TypeVar("_Filled", Direction, Gilbert, Bucket, Profile)


def read(path: Path) -> Profile:
    """The profile in a file like ``edge_to_server: {delay: 200ms, rate: 5mbit}``.

    A direction left out is unshaped. Raises UserError with the file and the line.
    """
    file = _File(path, "netem profile", UserError)
    root = file.compose()
    if root is None:
        raise UserError(f"{path}: is empty; write 'edge_to_server: {{delay: 200ms, rate: 5mbit}}'")
    return file.profile(root)


class _File(YamlFile):
    """What the nodes of one file mean."""

    def profile(self, node: yaml.Node) -> Profile:
        items = self.items(node, (*_WAYS, "shaper", *_BUCKET, *_OFFSET), "the profile")
        out, back = (self.direction(items[way]) if way in items else Direction() for way in _WAYS)
        profile = Profile(self.path.stem, out, back)
        if self.shaper(items) == NETEM_TBF:
            bucket = self.filled(Bucket(), items, _BUCKET)
            profile = self.put(profile, "bucket", bucket, items["shaper"])
        for key in _BUCKET:
            if key in items and profile.bucket is None:
                raise self.fault(items[key], f"{key} needs 'shaper: {NETEM_TBF}'")
        if "offset" in items and profile.period_s is None:
            raise self.fault(items["offset"], "offset needs a trace: it is where traces begin")
        return self.filled(profile, items, _OFFSET)

    def shaper(self, items: Mapping[str, yaml.Node]) -> str:
        if "shaper" not in items:
            return NETEM
        shaper = self.text(items["shaper"], f"shaper must be {NETEM} or {NETEM_TBF}")
        if shaper not in (NETEM, NETEM_TBF):
            raise self.fault(items["shaper"], f"unknown shaper {shaper!r}: use {NETEM} or {NETEM_TBF}")
        return shaper

    def direction(self, node: yaml.Node) -> Direction:
        items = self.items(node, (*_LINE, "trace", *_PACKETS), "a direction")
        direction = self.filled(Direction(), items, _LINE)
        if "trace" in items:
            direction = self.traced(direction, items["trace"], "delay" in items)
        if isinstance(items.get("loss"), yaml.MappingNode):
            direction = replace(direction, loss=self.bursts(items.pop("loss")))
        return self.filled(direction, items, _PACKETS)

    def traced(self, direction: Direction, node: yaml.Node, delayed: bool) -> Direction:
        """`direction` with the trace in place of its delay, which becomes that of every step."""
        file = self.path.parent / self.text(node, "trace must be a file's path")
        try:
            trace = trace_file.read(file, direction.delay_s if delayed else None)
        except UserError as error:
            raise self.fault(node, str(error)) from None
        return self.put(replace(direction, delay_s=0.0), "trace", trace, node)

    def bursts(self, node: yaml.Node) -> Gilbert:
        items = self.items(node, tuple(_GILBERT), "bursty loss")
        for key in ("good_to_bad", "bad_to_good"):
            if key not in items:
                raise self.fault(node, f"bursty loss needs {key}")
        return self.filled(Gilbert(1.0, 1.0), items, _GILBERT)

    def filled(self, blank: _Filled, items: Mapping[str, yaml.Node], keys: _Keys) -> _Filled:
        """`blank` with the values of those keys that are there, one by one: the first that is wrong has its line."""
        for key, (field, parse) in keys.items():
            if key in items:
                text = self.text(items[key], f"{key} must be a number and a unit")
                try:
                    value = parse(text, key)
                except ValueError as error:
                    raise self.fault(items[key], str(error)) from None
                blank = self.put(blank, field, value, items[key])
        return blank

    def put(self, blank: _Filled, field: str, value: Any, node: yaml.Node) -> _Filled:
        try:
            return replace(blank, **{field: value})
        except UserError as error:
            raise self.fault(node, str(error)) from None
