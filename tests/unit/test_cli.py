"""The command line as a user meets it, in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import REPOSITORY


def pareto(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pareto", *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--model", "mobilnetv2"], "did you mean mobilenet_v2"),
        (["--model", "mobilenetv2", "--netem", "fiveg"], "there is no netem profile 'fiveg'"),
        (["--model", "mobilenetv2", "--netem", "10mbit-"], "'10mbit-' is malformed"),
        (["--model", "mobilenetv2", "--points", "0,99"], "mobilenet_v2: no point '99': the points are 0"),
        (["--model", "mobilenetv2", "--backend", "udp"], "unknown backend 'udp'"),
        (["--model", "mobilenetv2", "--trials", "many"], "'--trials'"),
        (["--model", "alexnet", "--weights", "nowhere.pth"], "cannot read weights from nowhere.pth"),
        (["--netem", "none"], "--model is missing"),
        (["--modle", "alexnet"], "No such option: --modle"),
        (["frobnicate"], "frobnicate"),
        (["netem", "check", "fiveg"], "there is no netem profile 'fiveg'"),
        (["netem", "check", "wifi", "--duration", "5"], "--duration: delay '5' has no unit"),
        (["netem", "check", "wifi", "--testbed", "lab.yaml"], "cannot read the testbed lab.yaml"),
        (["--model", "alexnet", "--rtt-floor", "2"], "rtt_floor '2' has no unit"),
        (["--model", "alexnet", "--tolerance", "300%"], "tolerance"),
        (["--model", "alexnet", "--until", "200%"], "--until 2.0: input should be less than 1"),
        (["--model", "alexnet", "--budget", "1parsec"], "has the unknown unit 'parsec': use s, min, h"),
        (["bench", "transport", "--sizes", "4"], "--sizes: size '4' has no unit"),
        (["bench", "transport", "--netem", "fiveg"], "there is no netem profile 'fiveg'"),
        (["--resume", "nowhere"], "there is no run nowhere"),
        (["report", "nowhere"], "there is no run nowhere"),
        (["report", "README.md", "docs"], "none of these is a run's folder"),
        (["report", "example", "nowhere"], "there is no run nowhere"),
        (["report", "example", "--objectives", "latency,speed"], "speed"),
        (["report", "example", "--where", "latency_s <"], "latency_s"),
        (["report", "example", "--width", "poster"], "--width poster: one of column, page, both"),
        (["report", "example", "--figures", "some"], "'--figures'"),
        (["--model", "alexnet", "--figures", "some"], "'--figures'"),
        (["compare", "example", "nowhere"], "there is no run nowhere"),
        (["compare", "example", "example", "--objectives", "speed"], "speed"),
        (["advise", "example", "--rate", "20mbit"], "Missing option '--latency'"),
        (["advise", "example", "--latency", "80", "--rate", "20mbit"], "--latency '80' has no unit"),
        (["advise", "example", "--latency", "80ms", "--rate", "20"], "--rate '20' has no unit"),
        (["advise", "example", "--latency", "80ms", "--rate", "20mbit", "--for", "joy"], "--for joy"),
        (["advise", "example", "--latency", "80ms", "--rate", "20mbit", "--model", "vgg"], "vgg"),
        (["run", "nowhere.yaml"], "cannot read the sweep nowhere.yaml"),
    ],
)
def test_bad_input_is_one_clear_line_and_exit_code_2(arguments: list[str], says: str) -> None:
    done = pareto(*arguments)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert says in line


def test_an_unwritable_results_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = pareto("--model", "alexnet", "--points", "0", "--out", str(tmp_path / "file"))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "cannot write results" in line


def test_help_is_quick_because_it_imports_nothing_heavy() -> None:
    heavy = ("torch", "pandas", "matplotlib", "paramiko", "pyroute2")
    code = (
        "import sys; sys.argv = ['pareto', '--help']\n"
        "from pareto.cli import main\n"
        "code = main()\n"
        f"print('IMPORTED', code, [m for m in {heavy!r} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True
    )
    assert "IMPORTED 0 []" in done.stdout
    assert "run" in done.stdout


def test_what_is_about_to_run_is_said_before_anything_heavy_is_imported() -> None:
    """The first line must come within two seconds; importing torch alone can take longer."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "pareto", "--model", "mobilnetv2"],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    before = done.stdout.split("pareto: mobilnetv2 at none")[0]
    assert "pydantic" in before
    assert "| torch\n" not in before


def test_a_dry_run_prints_the_plan_alone(tmp_path: Path) -> None:
    done = pareto(
        "--model",
        "alexnet",
        "--netem",
        "200ms-5mbit",
        "--points",
        "0,15",
        "--dry-run",
        "--out",
        str(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    assert "2 of 16 points, 0, 15" in done.stdout
    assert "12: 4 cells, 3 of 3 rounds" in done.stdout
    assert "edge to server 200 ms at 5 Mbit/s" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert list(tmp_path.iterdir()) == []


def test_help_of_the_main_job_names_every_option() -> None:
    text = pareto("run", "--help").stdout
    for option in (
        "--model",
        "--netem",
        "--backend",
        "--points",
        "--trials",
        "--resume",
        "--quick",
        "--dry-run",
    ):
        assert option in text


def test_two_profiles_of_one_name_are_not_mixed_up(tmp_path: Path) -> None:
    for folder, delay in (("a", "1ms"), ("b", "2ms")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "lab.yaml").write_text(f"edge_to_server: {{delay: {delay}}}\n")
    both = f"{tmp_path}/a/lab.yaml,{tmp_path}/b/lab.yaml"
    done = pareto("--model", "alexnet", "--netem", both, "--dry-run")
    assert done.returncode == 2
    assert "another profile is called lab too" in done.stderr


def test_profiles_are_listed_in_words() -> None:
    lines = pareto("netem", "list").stdout.splitlines()
    listed = dict(line.split(maxsplit=1) for line in lines)
    assert listed["200ms-5mbit"] == "edge to server 200 ms at 5 Mbit/s"
    assert listed["200ms-5mbit-tbf"] == "edge to server 200 ms at 5 Mbit/s (shaper netem+tbf)"
    assert listed["none"] == "not shaped"
    assert "on average over the 30 s of handover" in listed["handover"]
