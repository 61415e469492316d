"""This machine as a host to be set up: a home of its own, a package index in a folder, root only if it is said so."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import zipfile
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pareto.hosts.inventory import HostEntry
from pareto.hosts.setup import finding
from pareto.hosts.ssh import login


@dataclass
class ExampleHost:
    """lines: what was said so far."""

    home: Path
    lines: list[str] = field(default_factory=list)

    @property
    def index(self) -> str:
        return f"file://{self.home}/index"

    @property
    def requirements(self) -> Path:
        return self.home / "requirements.txt"

    @property
    def venv(self) -> Path:
        return self.home / ".pareto" / "venv"

    def member(self, **fields: object) -> HostEntry:
        said = {"name": "pi", "role": "edge", "ssh": "local", "data_address": "10.0.0.2"}
        return HostEntry(**{**said, "pip_index": self.index, **fields})  # type: ignore[arg-type]

    def require(self, *lines: str) -> None:
        self.requirements.write_text("# What is needed.\n" + "".join(f"{line}\n" for line in lines))

    def offer(self, name: str, version: str, files: Any = None, index: str = "index") -> None:
        """Put a wheel into the index."""
        folder = self.home / index / name
        folder.mkdir(parents=True, exist_ok=True)
        about = f"{name}-{version}.dist-info"
        content = files or {f"{name}.py": f"version = {version!r}\n"}
        content[f"{about}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        said = "Wheel-Version: 1.0\nGenerator: us\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        content[f"{about}/WHEEL"] = said
        record = [f"{path},sha256={_hash(text)},{len(text)}\n" for path, text in content.items()]
        content[f"{about}/RECORD"] = "".join(record) + f"{about}/RECORD,,\n"
        wheel = folder / f"{name}-{version}-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as file:
            for path, text in content.items():
                file.writestr(path, text)
        wheels = sorted(path.name for path in folder.glob("*.whl"))
        (folder / "index.html").write_text("".join(f'<a href="{each}">{each}</a>\n' for each in wheels))

    def program(self, name: str, script: str) -> None:
        """Put a program of that name before the machine's own."""
        path = self.home / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)


def example_host(home: Path, monkeypatch: pytest.MonkeyPatch, venv: Path | None = None) -> ExampleHost:
    """`venv` is copied where one is to be made: putting pip into a new one takes ten seconds."""
    (home / "bin").mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{home}/bin:{os.environ['PATH']}")
    for name in os.environ:
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    host = ExampleHost(home)
    monkeypatch.setattr(finding, "REQUIREMENTS", host.requirements)
    monkeypatch.setenv("PIP_INDEX_URL", f"file://{home}/others")  # never the public one
    (home / "others").mkdir()
    host.program("id", '[ "$1" = -un ] && echo root || echo 0')
    if venv is not None:
        real = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
        copy = f'mkdir -p "$4" && find "$4" -mindepth 1 -delete && cp -a {venv}/. "$4"'
        made = f'[ "$1 $2 $3" != "-Im venv --clear" ] || {{ {copy}; exit; }}; exec {real} "$@"'
        host.program("python3", made)
    host.offer("tiny", "1.0")
    host.require("tiny==1.0")
    return host


def has(host: ExampleHost, **of: str) -> None:
    """Give the host these addresses, by interface."""
    links = []
    for name, text in of.items():
        address, _, prefix = text.partition("/")
        family = "inet6" if ":" in address else "inet"
        has = {"family": family, "local": address, "prefixlen": int(prefix)}
        links.append({"ifname": name, "addr_info": [has]})
    (host.home / "links").write_text(json.dumps(links))
    host.program("ip", f"cat {host.home}/links; echo")


def _hash(text: str) -> str:
    return urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def resolve(name: str, ssh: str, **fields: Any) -> login.Login:
    """The login of a host with that `ssh` in a testbed file."""
    return login.resolve(HostEntry(name, "edge", ssh, "192.0.2.1", **fields))
