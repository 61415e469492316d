"""The command line as a user meets it."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto import COMMAND, __version__
from pareto.commands import app
from pareto.sweep.options import GROUPS, OPTIONS, USUAL
from tests import REPOSITORY
from tests.program import Ended, command, refused, well

COMMANDS = (
    *("run", "report", "compare", "advise", "partitions", "netem list", "doctor", "serve"),
    *("hosts add", "hosts list", "hosts setup", "fleet join"),
)
TINY = "from torch import nn\n\ndef build():\n    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())\n"
BAD_INPUT = {
    "--model mobilnetv2 --dry-run": "mobilenet_v2",
    "--model mobilenetv2 --netem fiveg": "fiveg",
    "--model mobilenetv2 --netem 10mbit-": "10mbit-",
    "--model mobilenetv2 --points 0,99 --dry-run": "99",
    "--model mobilenetv2 --backend udp": "udp",
    "--model alexnet --weights nowhere.pth --dry-run": "nowhere.pth",
    "--netem none": "--model",
    "--modle alexnet": "--modle",
    "frobnicate": "frobnicate",
    "predict mobilenetv2": "advise --model",
    "profile mobilenetv2 --hosts 3": "partitions MODEL --times",
    "netem check wifi": "doctor --link",
    "completion bash": "--install-completion",
    "doctor --link fiveg": "fiveg",
    "doctor --link wifi --duration 5": "--duration",
    "doctor --link wifi --testbed lab.yaml": "lab.yaml",
    "doctor --link wifi --repair": "--repair",
    "doctor --tolerance 5%": "--tolerance",
    "partitions alexnet --batch-size 8": "--times",
    "partitions alexnet --times --prove": "--prove",
    "partitions alexnet --times --edge-cpu 7": "--edge-cpu",
    "partitions alexnet --times --testbed nowhere.yaml": "nowhere.yaml",
    "partitions alexnet --times --batch-size 0": "--batch-size",
    "partitions mobilnetv2": "mobilnetv2",
    "partitions fasterrcnn_resnet50_fpn": "fasterrcnn_resnet50_fpn",
    "--model alexnet -t many": "--trials",
    "-m alexnet --model alexnet": "--model",
    "--model alexnet --rtt-floor 2": "'2'",
    "--model alexnet --tolerance 300%": "tolerance",
    "--model alexnet --until 200%": "--until",
    "--model alexnet --budget 1parsec": "parsec",
    "--model alexnet --netem wifi --netem lte": "--netem",
    "--model alexnet --fold --no-fold": "--fold",
    "report example --out one --out two": "--out",
    "hosts add pi@192.0.2.7:2222 --role edge --testbed lab.yaml": "--port",
    f"--model alexnet --netem {300 * 'x'}": "File name too long",
    f"report {300 * 'x'}": "File name too long",
    f"hosts list --testbed {300 * 'x'}": "File name too long",
    "--resume nowhere": "nowhere",
    "report nowhere": "nowhere",
    "report README.md docs": "run",
    "report example nowhere": "nowhere",
    "report example --objectives latency,speed": "speed",
    "report example --where 'latency_s <'": "latency_s",
    "report example --width poster": "--width poster",
    "report example --figures some": "--figures",
    "report example --export all.csv": ".sqlite",
    "--model alexnet --figures some": "--figures",
    "compare example nowhere": "nowhere",
    "compare example example --objectives speed": "speed",
    "advise example --rate 20mbit": "--latency",
    "advise example --latency 80 --rate 20mbit": "--latency '80'",
    "advise example --latency 80ms --rate 20": "--rate '20'",
    "advise example --latency 80ms --rate 20mbit --for joy": "--for joy",
    "advise example --latency 80ms --rate 20mbit --model vgg": "vgg",
    "advise --latency 80ms --rate 20mbit": "--profile",
    "advise --latency 80ms --rate 20mbit --profile nowhere": "nowhere",
    "advise example --latency 80ms --rate 20mbit --batch-size 3": "--batch-size",
    "report example --profile nowhere": "nowhere",
    "advise -m mobilenetv2 --netem fiveg": "fiveg",
    "advise -m mobilenetv2 --testbed simulated --netem wifi+lte+wifi": "wifi+lte+wifi",
    "advise -m mobilenetv2 --latency 80ms": "--latency",
    "advise example --netem wifi": "--netem",
    "advise --profile nowhere --netem wifi --hosts 3": "--hosts",
    "advise --profile nowhere --netem wifi": "nowhere",
    "run nowhere.yaml": "nowhere.yaml",
    "serve --listen 192.0.2.1": "192.0.2.1",
    "serve --listen nowhere": "nowhere",
}
"""What is typed, and what of it the line names."""


@pytest.mark.parametrize(("arguments", "named"), BAD_INPUT.items(), ids=BAD_INPUT)
def test_bad_input_is_one_clear_line_and_exit_code_2(
    arguments: str, named: str, snapshot: SnapshotAssertion
) -> None:
    line = refused(*shlex.split(arguments))
    assert named in line
    assert line == snapshot


def ran(*argv: str, where: Path = REPOSITORY, **environment: str) -> Ended:
    """How a program of a process of its own ended."""
    env = {**os.environ, "COLUMNS": "80", **environment}
    done = subprocess.run(argv, cwd=where, capture_output=True, text=True, timeout=120, check=False, env=env)
    return Ended(done.returncode, done.stdout, done.stderr)


def test_bad_input_ends_the_process_with_exit_code_2() -> None:
    done = ran(sys.executable, "-m", "pareto", "--modle", "alexnet")
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert "--modle" in done.err


def test_an_unwritable_results_folder(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "net_of_test_cli.py").write_text(TINY)
    model = f"{tmp_path}/net_of_test_cli.py:build"
    line = refused("--model", model, "--testbed", "simulated", "--out", str(tmp_path / "file"))
    assert str(tmp_path / "file") in line
    assert line == snapshot


def test_help_is_quick_because_it_imports_nothing_heavy() -> None:
    heavy = ("torch", "pandas", "matplotlib", "paramiko", "pyroute2")
    done = ran(
        sys.executable,
        "-c",
        "import sys; sys.argv = ['pareto', '--help']\n"
        "from pareto.commands.app import main\n"
        "code = main()\n"
        f"print('IMPORTED', code, [m for m in {heavy!r} if m in sys.modules])",
    )
    assert done.out.endswith("IMPORTED 0 []\n"), done.err
    assert "run" in done.out


def test_the_version() -> None:
    done = command("--version")
    assert (done.code, done.out) == (0, f"pareto {__version__}\n")


def test_what_is_about_to_run_is_said_before_anything_heavy_is_imported() -> None:
    """The first line must come within two seconds; importing torch alone can take longer."""
    done = ran(
        sys.executable,
        "-c",
        "import sys; sys.argv = ['pareto', '--model', 'mobilnetv2']\n"
        "sys.modules['torch'] = None\n"
        "from pareto.commands.app import main\n"
        "try:\n"
        "    main()\n"
        "except ModuleNotFoundError as missing:\n"
        "    print('THEN', missing.name)",
    )
    first, then = done.out.splitlines()
    assert "mobilnetv2 at none" in first
    assert then == "THEN torch"


def test_a_dry_run_prints_the_plan_alone(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    wanted = "--model squeezenet1_1 --netem 200ms-5mbit --points 0,12 --dry-run"
    done = well(*wanted.split(), "--out", str(tmp_path))
    lines = done.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert list(tmp_path.iterdir()) == []
    *plan, estimate = lines
    assert estimate.startswith("estimate")
    assert re.sub(r"physics .*?be faster *", "physics ...", "\n".join(plan), flags=re.DOTALL) == snapshot


def test_help_of_the_main_job_has_what_is_usual_and_on_demand_every_option() -> None:
    usual, every = command("run", "--help"), command("run", "--help-all")
    assert (usual.code, every.code, usual.err, every.err) == (0, 0, "", "")
    own = dict.fromkeys(("out", "resume", "dry_run", "figures"), USUAL)
    levels = own | {name: option.level for name, option in OPTIONS.items()}
    assert {name.rstrip("_") for name in inspect.signature(app.run).parameters} == {*levels, "sweep"}
    assert 25 <= sum(level == USUAL for level in levels.values()) <= 35
    for name, level in levels.items():
        typed = f"--{name.replace('_', '-')} "
        assert typed in every.out
        assert (typed in usual.out.partition("Examples")[0]) == (level == USUAL), typed
    for line in ("-m, --model MODEL,...", "-n, --netem NAME,...", "-t, --trials N", "-o, --out FOLDER"):
        assert f"  {line} " in usual.out


def test_help_is_whole_and_in_groups() -> None:
    """Each command shows an example that can be copied; no sentence is cut off; plain text where nobody looks."""
    main = command("--help").out
    assert main.startswith(f"Usage: {COMMAND} --model MODEL ")
    assert "..." not in main.split("Measure:")[1]
    assert command().out == main
    for name in ("netem", "hosts", "fleet"):
        assert command(name).out.startswith(f"Usage: {COMMAND} {name} [OPTIONS] COMMAND")
    for name in COMMANDS:
        done = well(*name.split(), "--help")
        words, _, examples = done.out.partition("  Examples:\n")
        assert words.startswith(f"Usage: {COMMAND} {name} [OPTIONS]")
        assert max(map(len, words.splitlines())) <= 80
        assert words.isascii()
        assert all(line.startswith(f"    {COMMAND} ") for line in examples.splitlines())
        # Defaults stand in brackets by themselves, and no word is one of Python's.
        assert not re.search(r"default:|list\[|<\w+>|Path|[{}]|\[\(", words)
    lines = command("run", "--help").out.splitlines()
    assert [line[:-1] for line in lines if line.endswith(":") and line[:-1] in GROUPS] == [*GROUPS]


COMPLETED = {
    "adv": "advise",
    "--netem lte,200ms-5mbit-": "lte,200ms-5mbit-tbf",
    "-n sat": "satellite",
    "run --edge-c": "--edge-cpu",
    "--rtt-f": "--rtt-floor",
}


def test_a_shell_completes_what_is_typed(tmp_path: Path) -> None:
    """By the function that it is told to define."""
    program = tmp_path / Path(COMMAND).name
    program.write_text(f'#!/bin/bash\nexec {sys.executable} {REPOSITORY}/pareto/launcher.py pareto "$@"\n')
    program.chmod(0o755)
    lines = [f'eval "$(./{program.name} --show-completion)"']
    for typed in COMPLETED:
        lines.append(f"COMP_WORDS=({program.name} {typed}) COMP_CWORD={len(typed.split())}")
        lines.append(
            f'_{program.name.replace(".", "")}_completion ./{program.name}; echo "${{COMPREPLY[*]}}"'
        )
    done = ran("bash", "-c", "\n".join(lines), where=tmp_path, PYTHONPATH=str(REPOSITORY))
    assert (done.code, done.out.splitlines(), done.err) == (0, [*COMPLETED.values()], "")


def test_two_profiles_of_one_name_are_not_mixed_up(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    for folder, delay in (("a", "1ms"), ("b", "2ms")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "lab.yaml").write_text(f"edge_to_server: {{delay: {delay}}}\n")
    both = f"{tmp_path}/a/lab.yaml,{tmp_path}/b/lab.yaml"
    line = refused("--model", "alexnet", "--netem", both, "--dry-run")
    assert "lab" in line
    assert line == snapshot


def test_profiles_are_listed_in_words(snapshot: SnapshotAssertion) -> None:
    done = command("netem", "list")
    assert done.code == 0
    listed = dict(line.split(maxsplit=1) for line in done.out.splitlines())
    assert {"200ms-5mbit", "200ms-5mbit-tbf", "none", "handover"} <= set(listed)
    assert [listed[name] for name in ("200ms-5mbit", "200ms-5mbit-tbf", "none", "handover")] == snapshot
