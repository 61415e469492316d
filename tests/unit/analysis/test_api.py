"""What a notebook sees of `analysis`."""

from __future__ import annotations

import doctest
import importlib
import inspect
import subprocess
import sys

import pytest

from pareto import analysis
from tests import REPOSITORY

EXAMPLE = REPOSITORY / "results" / "example"


def test_every_public_name_is_there_and_documented() -> None:
    for name in analysis.__all__:
        assert name in dir(analysis)
        found = getattr(analysis, name)
        assert inspect.getdoc(found), name
        assert callable(found) or name == "figures"
        assert f"`{name}`" in (analysis.__doc__ or ""), f"{name} is told of"


@pytest.mark.parametrize("name", sorted({*analysis.__all__} - {"figures"}))
def test_no_module_takes_the_place_of_a_function(name: str) -> None:
    """Importing `analysis.<name>` would bind it in the package, for whoever asks for the function later."""
    assert not (REPOSITORY / "analysis" / f"{name}.py").exists()
    assert not (REPOSITORY / "analysis" / name).exists()


def test_the_package_costs_nothing_until_it_is_used_and_touches_no_backend() -> None:
    code = (
        "import sys; from pareto import analysis; import pareto.analysis.figures;"
        "heavy = {'pandas', 'numpy', 'pyarrow', 'scipy', 'matplotlib', 'moocore'};"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules);"
        "from pareto.analysis import load, front; assert 'matplotlib' not in sys.modules;"
        "import pareto.analysis.advice.advise, pareto.analysis.model_profile;"
        "slow = {'scipy.stats', 'scipy.optimize'}; assert not slow & set(sys.modules), slow & set(sys.modules);"
        "import pareto.analysis.reporting; assert 'matplotlib' not in sys.modules, 'half a second, until it draws';"
        "import pareto.analysis.figures.style, pareto.analysis.runs.requests as of_runs;"
        "assert analysis.requests is of_runs.request_latencies and analysis.load is load;"
        "import matplotlib as m;"
        "assert m.rcParams._get_backend_or_none() is None, 'a notebook would lose its backend';"
        "light = {'protocol.constants', 'protocol.errors', 'sweep.options', 'basics.escaping', 'basics.files',"
        "'basics.yaml_file', 'hosts.host', 'protocol.jsonlines', 'protocol.messages', 'protocol.own',"
        "'protocol.validation', 'remote.link.probe', 'remote.link.profile', 'remote.link.trace',"
        "'remote.link.units', 'sweep.load'};"
        "others = {name.removeprefix('pareto.') for name in sys.modules if name.count('.') > 1"
        " and name.startswith('pareto.') and not name.startswith('pareto.analysis.')};"
        "assert others - {'remote.link'} <= light, others - light"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=REPOSITORY)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'laod'"):
        analysis.laod  # noqa: B018


@pytest.mark.deep
def test_examples_in_docstrings_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    if not EXAMPLE.exists():
        pytest.skip("results/example is not there")
    monkeypatch.chdir(REPOSITORY)
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    modules = {"pareto.analysis", "pareto.analysis.figures"}
    modules |= {where.partition(":")[0] for where in analysis._WHERE.values()}
    tests = [test for name in sorted(modules) for test in finder.find(importlib.import_module(name), name)]
    assert sum(len(test.examples) for test in tests) > 10
    for test in tests:
        runner.run(test)
    assert runner.summarize().failed == 0
