"""The command line as a user meets it; a fault of the program's own is one line, with the place of a log."""

from __future__ import annotations

import inspect
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from pareto import COMMAND, __main__, __version__
from pareto.commands import app
from pareto.sweep.options import GROUPS, OPTIONS, USUAL
from tests import REPOSITORY
from tests.program import Ended, command, refused, well

COMMANDS = (
    *("run", "report", "compare", "advise", "artifact", "partitions", "netem list", "doctor", "serve"),
    *("hosts add", "hosts list", "hosts setup", "fleet join"),
)
TINY = "from torch import nn\n\ndef build():\n    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())\n"
BAD_INPUT = {
    "--model mobilnetv2 --dry-run": "mobilenet_v2",
    "--model mobilenetv2 --netem fiveg": "fiveg",
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
def test_bad_input_is_one_clear_line_and_exit_code_2(arguments: str, named: str, snapshot: object) -> None:
    line = refused(*shlex.split(arguments))
    assert named in line
    assert line == snapshot


def ran(
    *argv: str, where: Path = REPOSITORY, before: Any = None, out: int | None = None, **environment: str
) -> Ended:
    """How a program of a process of its own ended."""
    env = {**os.environ, "COLUMNS": "80", **environment}
    done = subprocess.run(
        argv,
        cwd=where,
        env=env,
        stdout=out or subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=before,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def python(code: str) -> Ended:
    return ran(sys.executable, "-c", code)


def test_files_that_do_not_do_are_named_in_one_line(tmp_path: Path, snapshot: object) -> None:
    """A results folder that cannot be written, and two profiles of one name."""
    (tmp_path / "file").write_text("")
    (tmp_path / "net_of_test_cli.py").write_text(TINY)
    model = f"{tmp_path}/net_of_test_cli.py:build"
    line = refused("--model", model, "--testbed", "simulated", "--out", str(tmp_path / "file"))
    assert str(tmp_path / "file") in line
    assert line == snapshot
    for folder, delay in (("a", "1ms"), ("b", "2ms")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "lab.yaml").write_text(f"edge_to_server: {{delay: {delay}}}\n")
    both = f"{tmp_path}/a/lab.yaml,{tmp_path}/b/lab.yaml"
    line = refused("--model", "alexnet", "--netem", both, "--dry-run")
    assert "lab" in line
    assert line == snapshot


def test_bad_input_ends_the_process_with_exit_code_2_and_help_imports_nothing_heavy() -> None:
    done = ran(sys.executable, "-m", "pareto", "--modle", "alexnet")
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert "--modle" in done.err
    heavy = ("torch", "pandas", "matplotlib", "paramiko", "pyroute2")
    code = "import sys; sys.argv = ['pareto', '--help']; from pareto.commands.app import main; code = main()"
    done = python(f"{code}\nprint('IMPORTED', code, [m for m in {heavy!r} if m in sys.modules])")
    assert done.out.endswith("IMPORTED 0 []\n"), done.err
    assert "run" in done.out


def test_what_is_about_to_run_is_said_before_anything_heavy_is_imported() -> None:
    """The first line must come within two seconds; importing torch alone can take longer."""
    code = "import sys; sys.argv = ['pareto', '--model', 'mobilnetv2']; sys.modules['torch'] = None\n"
    code += "from pareto.commands.app import main\ntry: main()\n"
    done = python(f"{code}except ModuleNotFoundError as missing: print('THEN', missing.name)")
    first, then = done.out.splitlines()
    assert "mobilnetv2 at none" in first
    assert then == "THEN torch"


def test_a_dry_run_prints_the_plan_alone(tmp_path: Path, snapshot: object) -> None:
    wanted = "--model squeezenet1_1 --netem 200ms-5mbit --points 0,12 --dry-run"
    done = well(*wanted.split(), "--out", str(tmp_path))
    lines = done.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert list(tmp_path.iterdir()) == []
    *plan, estimate = lines
    assert estimate.startswith("estimate")
    assert re.sub(r"physics .*?be faster *", "physics ...", "\n".join(plan), flags=re.DOTALL) == snapshot


def test_help_of_the_main_job_has_what_is_usual_and_on_demand_every_option() -> None:
    done = command("--version")
    assert (done.code, done.out) == (0, f"pareto {__version__}\n")
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
    "adv": "advise", "--netem lte,200ms-5mbit-": "lte,200ms-5mbit-tbf", "-n sat": "satellite",
    "run --edge-c": "--edge-cpu", "--rtt-f": "--rtt-floor",
}  # fmt: skip


def test_a_shell_completes_what_is_typed(tmp_path: Path) -> None:
    """By the function that it is told to define."""
    program = tmp_path / Path(COMMAND).name
    program.write_text(f'#!/bin/bash\nexec {sys.executable} {REPOSITORY}/pareto/launcher.py pareto "$@"\n')
    program.chmod(0o755)
    lines = [f'eval "$(./{program.name} --show-completion)"']
    complete = f'_{program.name.replace(".", "")}_completion ./{program.name}; echo "${{COMPREPLY[*]}}"'
    for typed in COMPLETED:
        lines += [f"COMP_WORDS=({program.name} {typed}) COMP_CWORD={len(typed.split())}", complete]
    done = ran("bash", "-c", "\n".join(lines), where=tmp_path, PYTHONPATH=str(REPOSITORY))
    assert (done.code, done.out.splitlines(), done.err) == (0, [*COMPLETED.values()], "")


def test_profiles_are_listed_in_words(snapshot: object) -> None:
    done = command("netem", "list")
    assert done.code == 0
    listed = dict(line.split(maxsplit=1) for line in done.out.splitlines())
    assert [listed[name] for name in ("200ms-5mbit", "200ms-5mbit-tbf", "none", "handover")] == snapshot


# A fault of the program's own, or of its installation

BROKEN = "def broken():\n    raise RuntimeError('a line\\nand \\x1b[31m another')\nbroken()\n"
PARETO = (sys.executable, "-B", "-m", "pareto")


@pytest.mark.parametrize("can_write", [True, False], ids=["log", "no log"])
def test_a_broken_installation(tmp_path: Path, can_write: bool) -> None:
    def no_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    (tmp_path / "typer.py").write_text(BROKEN)
    folders = {"PYTHONPATH": str(tmp_path), "XDG_STATE_HOME": f"{tmp_path}/state"}
    done = ran(*PARETO, "netem", "list", before=None if can_write else no_files, **folders)
    (line,) = done.err.splitlines()
    assert (done.code, done.out, line.isprintable()) == (os.EX_SOFTWARE, "", True)
    assert line.startswith("error: ")
    assert "RuntimeError: a line and" in line
    if can_write:
        (log,) = (tmp_path / "state" / "pareto").iterdir()
        assert str(log) in line
        text = log.read_text()
        assert all(part in text for part in ("Traceback", "in broken", "'netem', 'list'"))
        assert log.stat().st_mode & 0o77 == 0
    else:
        assert "no log file" in line
        assert "typer.py:2" in line
        assert not [*(tmp_path / "state").rglob("*.log")]


@pytest.mark.parametrize("arguments", [("netem", "list"), ("--help",)])
def test_a_full_disk_behind_standard_output_and_a_reader_that_has_seen_enough(arguments: tuple[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = ran(*PARETO, *arguments, out=full.fileno())
    words = "error: what is printed cannot be written: No space left on device\n"
    assert (done.code, done.err) == (2, words)
    reader, writer = os.pipe()
    os.close(reader)
    done = ran(*PARETO, *arguments, out=writer)
    os.close(writer)
    assert (done.code, done.err) == (128 + signal.SIGPIPE, "")


def test_a_fault_of_standard_output_is_taken_for_no_other_file_s() -> None:
    body = "try:\n  print('x', flush=True)\nexcept OSError:\n  return 7"
    code = f"import sys\nfrom pareto.__main__ import guarded\ndef run():\n{textwrap.indent(body, '  ')}\n"
    with Path("/dev/full").open("w") as full:
        assert ran(sys.executable, "-c", f"{code}sys.exit(guarded(run))", out=full.fileno()).code == 2


FAULTS = {
    "thread": ("thread = threading.Thread(target=lambda: 1 / 0); thread.start(); thread.join()", 1),
    "destructor": ("class It:\n  def __del__(self): raise ValueError\nIt()", 0),
    "recursion": ("raise RecursionError", 1),
    "memory": ("raise MemoryError", 1),
    "memory, as another fault": (
        "try:\n  [0] * (1 << 60)\nexcept MemoryError:\n  raise ValueError('the model') from None", 1
    ),
    "memory of another host": (
        "from pareto.hosts.host import TestbedError; raise TestbedError('pi: cannot allocate memory')", 1
    ),
    "encoding": ("raise UnicodeEncodeError('ascii', '\\udc80', 0, 1, 'no')", 1),
    "Ctrl-C": ("raise KeyboardInterrupt", 0),
}  # fmt: skip


@pytest.mark.parametrize(("body", "lines"), FAULTS.values(), ids=FAULTS)
def test_nothing_ends_in_a_traceback(tmp_path: Path, body: str, lines: int) -> None:
    code = f"import sys, threading\nfrom pareto.__main__ import guarded\ndef run():\n  exec({body!r})\n  return 0\n"
    done = ran(sys.executable, "-c", f"{code}sys.exit(guarded(run))", XDG_STATE_HOME=f"{tmp_path}/state")
    assert "Traceback" not in done.err
    assert len(done.err.splitlines()) == lines
    assert all(line.startswith("error: ") for line in done.err.splitlines())
    assert ("too little free memory" in done.err) == ("MemoryError" in body)


INTERRUPTED = """
import signal, sys, threading
from pareto.__main__ import guarded
class Closing:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
        print("not reached")
def command():
    Closing()
    print("goes on", flush=True)
    threading.Event().wait(20)
sys.exit(guarded(command))
"""


def test_an_interruption_that_arrives_in_a_destructor() -> None:
    assert python(INTERRUPTED) == Ended(130, "goes on\n", "")


@pytest.mark.parametrize(("given", "used"), [({}, "1"), ({"OPENBLAS_NUM_THREADS": "2"}, "2")])
def test_the_analysis_shares_cores(given: dict[str, str], used: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(__main__, "guarded", lambda command: 0)
    assert __main__.main() == 0
    assert os.environ.pop("OPENBLAS_NUM_THREADS") == used
