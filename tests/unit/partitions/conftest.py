import pytest

from pareto.partitions import registry


@pytest.fixture
def none_adopted(monkeypatch):
    """No user's model is known yet."""
    monkeypatch.setattr(registry, "_adopted", {})
