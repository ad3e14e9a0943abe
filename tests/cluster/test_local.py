"""Runs over shards in this process."""

from __future__ import annotations

import pytest

from p3s.runs import opening
from tests.helpers import record, small_config

SPLIT = ["p3s", "sharing", "resetting", "pbt"]
REVIEWED = {"resetting": 50, "pbt": 50}


def sharded(path, steps: int = 800, stop: int | None = None, **fields):
    """A run over shards in a folder; a stop writes nothing, as if it was killed there."""
    config = small_config(steps=steps, checkpoint_period=150, **{"shards": 2, **fields})
    training = opening.begin(config, path)
    training.run(steps, callback=lambda now: now.total_steps < (stop or steps))
    training.close()
    return training


@pytest.mark.parametrize("scheme", SPLIT)
def test_one_shard_that_exchanges_every_step_is_a_run_in_one_piece(scheme, tmp_path):
    fields = {"scheme": scheme, "review_period": REVIEWED.get(scheme, 25)}
    config = small_config(steps=600, checkpoint_period=150, **fields)
    whole = opening.begin(config, tmp_path / "whole")
    whole.run(600)
    whole.close()
    sharded(tmp_path / "sharded", 600, shards=1, exchange_period=1, **fields)
    ours, theirs = record(tmp_path / "sharded"), record(tmp_path / "whole")
    assert ours == theirs


@pytest.mark.parametrize("scheme", SPLIT)
def test_killed_and_resumed_is_uninterrupted(scheme, tmp_path):
    fields = {"scheme": scheme, "review_period": 25, "exchange_period": 7}
    sharded(tmp_path / "whole", **fields)
    sharded(tmp_path / "killed", stop=500, **fields)
    training, _ = opening.reopen(tmp_path / "killed")
    assert 0 < training.total_steps < 500
    training.run(800)
    training.close()
    assert record(tmp_path / "killed") == record(tmp_path / "whole")
