"""Stand-ins for real hosts: OpenSSH servers that know nothing of the local testbed, reached as a Raspberry Pi would be.

    with open_lab(tmp_path) as lab:
        subprocess.run([sys.executable, "-m", "pareto", ..., "--testbed", str(lab.testbed())], env=lab.environment)
        lab.host("gpu").power_off()

By hand: python -m tests.lab
"""

from tests.lab.host import LabError, LabHost
from tests.lab.lab import Lab, give_up_soon, open_lab

__all__ = ["Lab", "LabError", "LabHost", "give_up_soon", "open_lab"]
