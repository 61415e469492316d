"""In place of pip in a virtual environment: unpacks wheels from indexes that are folders, and says what pip says.

Each call is noted in `pip.log` in the user's home.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import zipfile
from pathlib import Path


def main(arguments: list[str]) -> None:
    def option(name: str) -> str:
        return arguments[arguments.index(name) + 1] if name in arguments else ""

    with (Path.home() / "pip.log").open("a") as log:
        print(*arguments, file=log)
    indexes = [option("--index-url") or os.environ["PIP_INDEX_URL"], option("--extra-index-url")]
    wheels = []
    for line in Path(option("-r")).read_text().splitlines():
        if requirement := line.partition("#")[0].strip():
            name, version = requirement.split("==")
            wheel = f"{name}/{name}-{version}-py3-none-any.whl"
            folders = [Path(index.removeprefix("file://")) for index in indexes if index]
            found = [folder / wheel for folder in folders if (folder / wheel).exists()]
            if not found:
                # Both to the same stream: else the order depends on whether the other is buffered.
                print(f"ERROR: Could not find a version that satisfies {requirement}", file=sys.stderr)
                sys.exit(f"ERROR: No matching distribution found for {requirement}")
            print(f"Collecting {requirement} (from -r requirements.txt)")
            wheels.append(found[0])
    print("Installing collected packages: " + ", ".join(wheel.parent.name for wheel in wheels))
    for wheel in wheels:
        install(wheel, Path(sysconfig.get_path("purelib")))


def install(wheel: Path, into: Path) -> None:
    """In place of what is there of that name."""
    for before in (*into.glob(f"{wheel.parent.name}-*.dist-info"), into / wheel.parent.name):
        shutil.rmtree(before, ignore_errors=True)
    with zipfile.ZipFile(wheel) as file:
        file.extractall(into)


if __name__ == "__main__":
    main(sys.argv[1:])
