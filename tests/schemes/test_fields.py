"""No hyper-parameter of a scheme is dead."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from p3s.config.run import field_values, resolve
from p3s.schemes import SCHEMES
from p3s.types import EnvSpec
from tests.helpers import small_training

SPEC = EnvSpec.flat(2, 1)

OTHER_VALUES = {
    "p3s": {
        "num_learners": 2, "review_period": 30, "recent_episodes": 2, "updates_per_step": 2,
        "initial_steps": 30, "random_steps": "next_thousand", "learners_start": "independent",
        "skip_random_episodes": True,
        "beta": 3.0, "rho": 0.1, "d_min": 1.0, "beta_limit": 1.0,
        "distance_estimate": "every_minibatch", "distances_exclude": "new_best",
        "guide_from_start": False, "guide_source": "snapshot", "return_memory": 10,
        "own_share": 0.5, "batch_size": 9, "policy_period": 3, "n_step": 3,
        "normalize_observations": True, "normalize_rewards": True,
    },
    "resetting": {"review_period": 30, "copied": "policy_and_target"},
    "center": {"review_period": 30, "beta": 3.0, "center_learning_rate": 0.01},
    "distributed": {"envs_per_learner": 2},
    "pbt": {"quantile": 0.5, "perturbation": 2.0, "perturbed": ("discount_factor",)},
    "mf_pbt": {
        "num_learners": 16, "group_periods": (2, 3), "perturbation": 2.0,
        "perturbed": ("discount_factor",),
    },
    "pb2": {
        "quantile": 0.5, "perturbed": ("discount_factor",), "memory": 1, "optimism": 9.0,
        "lower_bounds": (1e-3, 0.09, 0.98), "upper_bounds": (2e-3, 0.2, 0.995),
    },
    "dvd": {
        "num_probing_states": 3, "kernel_width": 0.1, "bandit_memory": 1,
        "diversity_weights": (0.0, 0.9),
    },
}  # fmt: skip
"""For every field of the schemes, and those of algorithms that the loop uses, another value."""
P3S_OWN = ("beta", "rho", "d_min", "beta_limit", "distance_estimate", "distances_exclude")
P3S_OWN += ("guide_source", "return_memory", "own_share")
"""Fields of p3s that are tried in the fast tests."""

OTHER_VALUES_OF_ROUNDS = {
    "cem": {
        "num_selected": 1, "num_elites": 1, "selection": "first", "sampling": "mirrored",
        "elite_weights": "log", "variance_estimate": "cem_rl", "update_order": "values_first",
        "initial_variance": 0.1, "damping": 0.1, "final_damping": 0.1, "damping_decay": 0.5,
        "episodes_per_round": 2, "initial_steps": 60,
    },
    "erl": {
        "elite_fraction": 0.5, "mutation_probability": 0.1, "mutated_share": 0.9,
        "mutation_strength": 1.0, "synchronization_period": 1, "episodes_per_round": 2,
    },
    "evorainbow": {
        "champion_rate": 0.5, "num_elites": 1, "sampling": "mirrored", "elite_weights": "log",
        "variance_estimate": "cem_rl", "initial_variance": 0.1, "damping": 0.1,
        "final_damping": 0.1, "damping_decay": 0.5, "episodes_per_round": 2, "initial_steps": 60,
    },
}  # fmt: skip
"""The same for the schemes that work in rounds."""


class TestFields:
    """A hyper-parameter is written once, arrives, and changes something."""

    def history(self, scheme, **fields):
        """What a short run leaves behind, in a form that tells any two runs apart."""
        # Reacher has two action dimensions, so that sum and mean differ.
        defaults = {
            "p3s": {"recent_episodes": 1, "review_period": 25, "d_min": 0.0},
        }.get(scheme, {"recent_episodes": 1, "review_period": 25})
        fields = {"evaluation_period": 0, **defaults, **fields}
        training = small_training("Reacher-v5", scheme=scheme, **fields)
        reviews = []
        for _ in range(6):
            training.run(training.total_steps + 25 * training.scheme.num_envs)
            reviews.append(str(training.last_review))
        state = jax.tree.leaves(training.crew.updater.state)
        return reviews, [np.asarray(leaf).tobytes() for leaf in state]

    @pytest.fixture(scope="class")
    def references(self):
        return {}

    @pytest.mark.parametrize(
        ("scheme", "name"),
        [
            pytest.param(
                scheme,
                name,
                marks=[] if scheme == "p3s" and name in P3S_OWN else [pytest.mark.slow],
            )
            for scheme in OTHER_VALUES
            for name in OTHER_VALUES[scheme]
        ],
    )
    def test_none_is_dead(self, scheme, name, references):
        if scheme not in references:
            references[scheme] = self.history(scheme)
        assert self.history(scheme, **{name: OTHER_VALUES[scheme][name]}) != references[scheme]

    def rounds(self, scheme, **fields):
        """What two rounds leave behind, and what would be learned when: nothing is trained."""
        small = {"hidden_sizes": (4,), "num_learners": 4, "initial_steps": 1}
        own = {
            "cem": {"damping": 0.01},
            "erl": {"synchronization_period": 3},
            "evorainbow": {
                "damping": 0.01, "elite_weights": "equal", "variance_estimate": "plain",
            },
        }[scheme]  # fmt: skip
        made = resolve(None, scheme, preset="paper", **{**small, **own, **fields}).scheme
        state, draw = jax.jit(made.init, static_argnums=1)(jax.random.key(0), SPEC), []
        generator = np.random.default_rng(0)
        returns = np.resize([3.0, 1.0, 4.0, 2.0, 5.0], (made.num_envs, made.num_recent))
        for _ in range(2):
            state, review = made.review(state, returns, np.zeros((5, 2), np.float32), generator)
            draw.append(str(review))
        leaves = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)]
        everyone, rhythm = np.arange(made.num_envs), made.rhythm()
        due = [rhythm.after(step, everyone, everyone.tolist()) for step in range(1, 4)]
        learning = [(made.with_policy(1, place, 4), made.num_batches(True)) for place in range(4)]
        return draw, leaves, due, learning

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("scheme", "name"),
        [(scheme, name) for scheme, own in OTHER_VALUES_OF_ROUNDS.items() for name in own],
    )
    def test_none_is_dead_in_rounds(self, scheme, name, references):
        if scheme not in references:
            references[scheme] = self.rounds(scheme)
        other = OTHER_VALUES_OF_ROUNDS[scheme][name]
        assert self.rounds(scheme, **{name: other}) != references[scheme]

    def test_all_are_covered(self):
        """The fields of algorithms that the loop does not use: ../algorithms/test_fields.py."""
        used_by_the_loop = {"batch_size", "policy_period", "n_step"}
        used_by_the_loop |= {"normalize_observations", "normalize_rewards"}
        known, covered = set(used_by_the_loop), set()
        for scheme in SCHEMES:
            algorithm = "ppo" if scheme == "rollout" else "td3"
            known |= set(field_values(resolve(None, scheme, algorithm).scheme))
            covered |= {*OTHER_VALUES.get(scheme, ()), *OTHER_VALUES_OF_ROUNDS.get(scheme, ())}
        assert known == covered
