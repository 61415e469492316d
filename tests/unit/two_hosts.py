"""A testbed file with two SSH hosts, and a sweep over them."""

from __future__ import annotations

from pathlib import Path

from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.sweep import Sweep

LAB = """\
hosts:
  pi: {role: edge, ssh: pi@pi.local, data_address: 192.168.7.2, threads: 4, folder: /srv/pareto}
  gpu: {role: server, ssh: local, data_address: 192.168.7.1, device: "cuda:0"}
"""


def lab_sweep(folder: Path) -> Sweep:
    """A sweep over the hosts of `LAB`, whose file is `lab.yaml` in this folder."""
    path = folder / "lab.yaml"
    path.write_text(LAB)
    return make_sweep({"model": "alexnet", "netem": "200ms-5mbit", "testbed": str(path)})
