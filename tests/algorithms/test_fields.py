"""Bad values of fields are refused. That no field is dead is in test_contract.py."""

from __future__ import annotations

import pytest

from p3s.algorithms import ALGORITHMS
from tests.helpers import problem_of

OFF_POLICY = [name for name, made in ALGORITHMS.items() if not made.on_policy]


@pytest.mark.parametrize("algorithm", OFF_POLICY)
def test_bad_values(algorithm):
    for fields, message in (
        ({"discount_factor": 1.5}, "discount_factor must be between 0 and 1"),
        ({"adam_momentum": 1.0}, "adam_momentum must be at least 0 and below 1"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"hidden_sizes": (0,)}, "hidden_sizes must be at least 1"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"activation": "step"}, 'activation must be "relu" or "tanh"'),
    ):
        assert message in problem_of(ALGORITHMS[algorithm](**fields))
    assert problem_of(ALGORITHMS[algorithm]()) == ""
