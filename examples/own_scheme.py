"""A scheme of your own: sharing, with a review that only writes down how far learners are apart.

python examples/own_scheme.py [STEPS]
p3s --import examples.own_scheme train Pendulum-v1 --scheme observed
"""

import sys
from dataclasses import dataclass
from typing import ClassVar

from p3s import Population, register
from p3s.schemes.sharing import Sharing


@register
@dataclass(frozen=True, kw_only=True)
class Observed(Sharing):
    """Learners share one replay; see docs/extending.md for what else a scheme can do."""

    name: ClassVar[str] = "observed"


if __name__ == "__main__":
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 8_000
    population = Population("Pendulum-v1", scheme="observed", hidden_sizes=(32, 32))
    print(population.learn(steps))
