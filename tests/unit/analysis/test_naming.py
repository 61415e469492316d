"""How things are named in titles, labels and files."""

from __future__ import annotations

import pytest

from pareto.analysis.naming import point_label


@pytest.mark.parametrize(
    ("point", "name", "label"),
    [
        ("7", "features.6", "7 features.6"),
        ("7", "", "7"),
        ("7", "7", "7"),
        ("7", "backbone.features.6.conv", "7 backb…res.6.conv"),
        ("3+7", "features.2+backbone.features.6.conv", "3+7 features.2+back….6.conv"),
        ("3+7+9", "a+b+c", "3+7+9"),
    ],
)
def test_labels_of_points(point: str, name: str, label: str) -> None:
    assert point_label(point, name) == label
