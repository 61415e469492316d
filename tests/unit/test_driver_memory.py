"""What the driver needs of its own machine's memory: it may be a laptop, and a model large."""

import json
import subprocess
import sys

# Another process: what this one has allocated before, freed or not, would count too.
PROGRAM = """
import json, os, sys
from pathlib import Path
from pareto import sweeping
from pareto.hosts import shipping, way
from pareto.prepare import prepare
from pareto.spec import Sweep

def mib(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(key))

bare = mib("VmHWM:")
name, folder = sys.argv[1:]
it = prepare(name, Sweep(model=name))
for artifact in (it.weights, *it.data.values()):
    shipping.ship(way.Here(), folder, artifact.path, artifact.digest)
size = os.stat(it.weights.path).st_size / 2**20
print(json.dumps({"weights": size, "bare": bare, "peak": mib("VmHWM:") - bare, "left": mib("VmRSS:") - bare}))
"""


def test_a_deep_model_takes_less_than_twice_its_weights_and_leaves_nothing_behind(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "resnet152", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    mib = json.loads(done.stdout)
    assert 200 < mib["weights"] < 300
    assert mib["weights"] < mib["peak"] <= 2 * mib["weights"], mib
    assert mib["left"] < 0.5 * mib["weights"], mib
