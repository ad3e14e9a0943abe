"""A scheme of your own: sharing, with a review that only writes down how far learners are apart.

python examples/own_scheme.py [STEPS]
p3s --import examples.own_scheme train Pendulum-v1 --scheme observed
"""

import sys
from dataclasses import dataclass
from typing import ClassVar

from p3s import Population, register
from p3s.callbacks import Callback
from p3s.learning.learners import distances
from p3s.schemes.sharing import Sharing
from p3s.trees import pick


@register
@dataclass(frozen=True, kw_only=True)
class Observed(Sharing):
    """Learners share one replay; see docs/extending.md for what else a scheme can do."""

    name: ClassVar[str] = "observed"

    def review(self, state, recent_returns, observations, rng):
        state, row = super().review(state, recent_returns, observations, rng)
        policies = self.policies(state)
        apart = max(
            float(distances(self.algorithm, policies, pick(policies, index), observations).max())
            for index in range(self.num_learners)
        )
        return state, {**row, "apart": apart}


class PrintReviews(Callback):
    """The same number is in lineage.jsonl, where a run has a folder."""

    def on_review(self, training, row):
        print(f"step {row['step']:,}: learners are up to {row['apart']:.3g} apart")


if __name__ == "__main__":
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 8_000
    population = Population("Pendulum-v1", scheme="observed", hidden_sizes=(32, 32))
    print(population.learn(steps, callback=PrintReviews()))
