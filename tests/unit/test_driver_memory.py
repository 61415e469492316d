"""What the driver needs of its own machine's memory: it may be a laptop, and a model large."""

import json
import subprocess
import sys

import pytest

from tests import REPOSITORY

MODEL = """
from torch import nn
from pareto.partitions import registry

@registry.register(input_shape=(3, 16, 16))
def deep():
    return nn.Sequential(nn.Flatten(), nn.Linear(768, 512), *(nn.Linear(512, 512) for _ in range(110)))
"""
# Another process: what this one has allocated before, freed or not, would count too.
PROGRAM = """
import json, os, sys
from pathlib import Path
from pareto.commands import run
from pareto.hosts import connection
from pareto.hosts.parcels import Parcel, send
from pareto.models.prepare import prepare
from pareto.sweep.sweep import Sweep

def mib(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(key))

bare = mib("VmHWM:")
name, folder = sys.argv[1:]
it = prepare(name, Sweep(model=name))
parcels = [Parcel(shard.digest, shard.size, shard.blocks) for shard in it.shards]
parcels += [Parcel.of(artifact.path, artifact.digest) for artifact in it.data.values()]
send(connection.ThisMachine(), folder, parcels)
size = os.stat(it.weights.path).st_size / 2**20
print(json.dumps({"weights": size, "bare": bare, "peak": mib("VmHWM:") - bare, "left": mib("VmRSS:") - bare}))
"""


@pytest.mark.deep
def test_a_deep_model_takes_little_more_than_its_weights_and_leaves_nothing_behind(tmp_path):
    model = tmp_path / "model_of_test_driver_memory.py"
    model.write_text(MODEL)
    argv = [sys.executable, "-c", PROGRAM, f"{model}:deep", str(tmp_path / "host")]
    mib = json.loads(subprocess.run(argv, cwd=REPOSITORY, stdout=subprocess.PIPE, check=True).stdout)
    assert 100 < mib["weights"] < 150
    assert mib["weights"] < mib["peak"] <= 1.5 * mib["weights"], mib
    assert mib["left"] < 0.5 * mib["weights"], mib
