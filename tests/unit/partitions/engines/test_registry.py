from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.partitions.engines import registry
from pareto.partitions.engines.registry import listed, parse
from pareto.protocol.errors import UserError
from pareto.sweep.checked_sweep import make_sweep
from tests import REPOSITORY
from tests.unit.offered import example, installed
from tests.unit.refusals import refusal

PYTHON = sys.executable
MIXED = "edge=onnx+server=compile"


def test_an_engine_has_one_text(snapshot: SnapshotAssertion) -> None:
    texts = {
        "eager": "eager",
        "onnx": "onnx",
        "edge=onnx": "edge=onnx",
        "server=compile+edge=onnx": MIXED,
        "edge=onnx+server=eager": "edge=onnx",
        "edge=eager+server=eager": "eager",
        "server=onnx+middle10=onnx+middle2=compile": "middle2=compile+middle10=onnx+server=onnx",
    }
    assert {text: parse(text).text for text in texts} == texts
    assert all(parse(text) == parse(canonical) for text, canonical in texts.items())
    # The refusal says what there is.
    assert refusal(ValueError, parse, "tensorrt") == snapshot
    # Each host has its engine.
    hosts = {
        "onnx": ["onnx", "onnx", "onnx"],
        MIXED: ["onnx", "eager", "compile"],
        "middle1=compile": ["eager", "compile", "eager"],
    }
    assert {text: [parse(text).at(position, 3) for position in range(3)] for text in hosts} == hosts
    assert parse(MIXED).at(1, 2) == "compile", "the last of two hosts is the server"
    assert parse(MIXED).of("middle1") == "eager", "who is not named"


@pytest.mark.parametrize(
    "text",
    ["", "tensorrt", "onnx+compile", "edge=", "edge=tensorrt", "=onnx", "middle=onnx", "middle0=onnx",
     "cloud=onnx", "edge=onnx+compile", "edge=onnx+edge=onnx", "onnx ", "ONNX", "edge=onnx=eager"],
)  # fmt: skip
def test_what_is_no_engine_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no engine|twice"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "cuts", "lossy"),
    [
        ("onnx:int8", (3,), "edge=onnx:int8+server=onnx:int8"),
        ("onnx:int8", (0,), "server=onnx:int8"),
        ("onnx:int8", (7,), "edge=onnx:int8"),
        ("onnx:int8", (3, 3), "edge=onnx:int8+server=onnx:int8"),
        ("edge=onnx:int8+server=compile", (3,), "edge=onnx:int8"),
        ("edge=onnx:int8+server=compile", (0,), "eager"),
        ("edge=onnx+server=compile", (3,), "eager"),
    ],
)
def test_what_changes_results_is_of_hosts_that_work(text: str, cuts: tuple[int, ...], lossy: str) -> None:
    made = parse(text).lossy(cuts, 7)
    assert made.text == lossy
    assert bool(made.differs) == (lossy != "eager")


def test_what_changes_results_is_worked_out_here_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda name: None)
    make_sweep({"model": "m", "engine": "eager,onnx"})
    with pytest.raises(UserError, match=r"--engine onnx:int8.*pip install"):
        make_sweep({"model": "m", "engine": ["eager", "edge=onnx:int8"]})


@pytest.mark.parametrize("engine", ["eager", "compile"])
def test_a_processor_without_short_numbers_is_refused(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = registry.missing(engine)
    monkeypatch.setattr(registry, "processor_flags", lambda: frozenset({"avx2"}))
    assert "no bfloat16" in registry.missing(f"{engine}:bfloat16")
    assert registry.missing("eager:channels_last") == ""
    monkeypatch.setattr(registry, "processor_flags", lambda: frozenset({"bf16"}))
    assert registry.missing(f"{engine}:bfloat16") == usual


@pytest.mark.parametrize(
    ("parts", "texts"),
    [
        ("eager onnx onnx", ("eager", "onnx")),
        ("edge=onnx server=compile", (MIXED,)),
        ("eager edge=onnx server=compile compile", ("eager", MIXED, "compile")),
        ("edge=onnx edge=compile server=onnx", ("edge=onnx", "edge=compile+server=onnx")),
        ("edge=onnx+server=compile edge=onnx", (MIXED, "edge=onnx")),
        ("edge=onnx eager server=onnx", ("edge=onnx", "eager", "server=onnx")),
    ],
)
def test_engines_of_hosts_may_be_written_with_commas(parts: str, texts: tuple[str, ...]) -> None:
    assert listed(parts.split()) == texts


@pytest.fixture(autouse=True)
def python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/opt/venv/bin/python")


def test_what_a_host_lacks_is_one_line_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    said = [registry.missing("compile")]
    monkeypatch.setenv("CXX", "true")
    monkeypatch.setattr(registry.sysconfig, "get_path", lambda name: str(tmp_path))
    said.append(registry.missing("compile"))
    (tmp_path / "Python.h").touch()
    assert registry.missing("compile") == ""
    monkeypatch.setattr(registry, "find_spec", lambda name: None if name == "onnxruntime" else object())
    said.append(registry.missing("onnx"))
    monkeypatch.setattr(registry, "find_spec", lambda name: None)
    assert [*said, registry.missing("onnx")] == snapshot
    assert registry.missing("eager") == ""

    # A version is of the package for GPUs where that is there.
    def of(package: str) -> str:
        if package != "onnxruntime-gpu":
            raise metadata.PackageNotFoundError(package)
        return "1.32.0"

    monkeypatch.setattr(registry.metadata, "version", of)
    assert registry.version("onnx") == "1.32.0"


@pytest.fixture
def gpu_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with a compiler and all packages, whose processor has no short numbers; the folder of CUDA's toolkit."""
    monkeypatch.setenv("CXX", "true")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setattr(registry.sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setattr(registry, "find_spec", lambda name: object())
    monkeypatch.setattr(registry, "has_cuda", lambda package: True)
    monkeypatch.setattr(registry, "processor_flags", lambda: frozenset())
    (tmp_path / "include").mkdir()
    for header in ("Python.h", "include/cuda.h"):
        (tmp_path / header).touch()
    return tmp_path


@pytest.mark.parametrize("capability", ["8.0", "9.0", "10.3"])
def test_engines_that_compute_on_a_gpu(gpu_host: Path, capability: str) -> None:
    lacking = registry.missing_here("cuda:1", capability)
    assert {name for name, lacks in lacking.items() if lacks} == {"onnx:int8"}
    assert "processors only" in lacking["onnx:int8"]
    assert "cuda:1" in lacking["onnx:int8"]


def test_onnx_on_a_gpu_needs_a_runtime_with_cuda(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    found = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(registry, "find_spec", lambda name: found)
    said = [registry.missing("onnx", "cuda:0", "9.0")]
    (tmp_path / "capi").mkdir()
    (tmp_path / "capi" / "libonnxruntime_providers_cuda.so").touch()
    assert registry.missing("onnx", "cuda:0", "9.0") == ""
    monkeypatch.setattr(registry, "find_spec", lambda name: None if name == "onnxruntime" else found)
    said.append(registry.missing("onnx", "cuda:0", "9.0"))
    assert said == snapshot


def test_what_a_gpu_lacks_for_an_engine(
    gpu_host: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion, tmp_path: Path
) -> None:
    said = [registry.missing("eager:bfloat16", "cuda:0", "7.5")]
    (gpu_host / "include" / "cuda.h").unlink()
    said.append(registry.missing("compile", "cuda:0", "9.0"))
    monkeypatch.setattr(registry, "find_spec", lambda name: None)
    said.append(registry.missing("compile", "cuda:0", "9.0"))
    assert said == snapshot
    assert registry.missing("compile") == "", "a processor needs neither"
    assert registry.missing("eager", "cuda:0", "5.0") == ""
    # The toolkit is where its compiler is.
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "include" / "cuda.h").touch()
    monkeypatch.setattr(registry.shutil, "which", lambda name: str(tmp_path / "bin" / name))
    assert registry.cuda_toolkit() == tmp_path
    monkeypatch.setattr(registry.shutil, "which", lambda name: None)
    monkeypatch.setattr(registry, "CUDA_TOOLKIT", tmp_path / "none")
    assert registry.cuda_toolkit() is None


def test_a_package_offers_an_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"fusing.py": example("fusing.py")}
    with installed(tmp_path, files, engines="fused = fusing:ENGINE\neager = fusing:ENGINE"):
        assert make_sweep({"model": "m", "engine": "fused,edge=onnx+server=fused"}).engines[0] == "fused"
        assert registry.ENGINES["eager"].builder == ""
        assert "fused (PyTorch, batch norms within convolutions)" in refusal(ValueError, parse, "tensorrt")
        assert [*registry.ENGINES][-1] == "fused" and len(registry.ENGINES) == 8
        assert registry.missing_here("cpu")["fused"] == ""
        assert registry.version("fused") == "1.5"
        monkeypatch.setattr(registry, "find_spec", lambda name: None)
        assert "lacks the package torch" in registry.missing("fused")


@pytest.mark.parametrize(
    ("point", "fault"),
    [("bad:IT", "ZeroDivisionError"), ("sys:IT", "no attribute 'IT'"), ("sys:path", "no Kind of")],
)
def test_an_engine_that_cannot_be_loaded_is_one_line_where_it_is_named(
    point: str, fault: str, tmp_path: Path
) -> None:
    with installed(tmp_path, {"bad.py": "1 / 0"}, engines=f"it = {point}"):
        make_sweep({"model": "m", "engine": "onnx"})
        said = refusal(UserError, make_sweep, {"model": "m", "engine": "edge=it", "testbed": "simulated"})
        assert said.startswith(f"--engine it: a package offers it as {point}: ") and fault in said
        assert fault in registry.missing_here("cpu")["it"]


def test_a_name_is_checked_without_torch_or_an_engine() -> None:
    code = "import sys; from pareto.partitions.engines.registry import parse; parse('onnx');"
    check = "sys.exit(bool({'torch', 'onnxruntime', 'onnx'} & set(sys.modules)))"
    subprocess.run([PYTHON, "-c", code + check], check=True)


def test_onnx_runtime_keeps_and_sends_nothing_of_what_is_measured(tmp_path: Path) -> None:
    """It would keep a database in the user's home, of what it then sends to its maker."""
    program = "import pareto.partitions.engines, onnxruntime; onnxruntime.SessionOptions()"
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    environment["HOME"] = str(tmp_path)
    subprocess.run([PYTHON, "-c", program], check=True, cwd=REPOSITORY, env=environment)
    assert not list(tmp_path.rglob("*onnxruntime*"))
