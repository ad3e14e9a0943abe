"""The short form of the campaign: a sample of every fault, and nothing lost."""

from __future__ import annotations

import importlib

import pytest

from campaign import SECTIONS


@pytest.mark.parametrize("name", SECTIONS)
def test_nothing_is_lost(name):
    if name == "guided_fuzzing":
        pytest.importorskip("atheris")
    result = importlib.import_module(f"campaign.{name}").run(short=True)
    assert result.tried > 0
    assert result.lost == 0, result.notes
