"""MiniGrid: a small picture of what is in front, and the direction that one looks in.

python examples/grid.py [STEPS]

It comes with a package of its own: pip install minigrid. The same in the shell:

    p3s train minigrid:MiniGrid-Empty-5x5-v0 --no-scale-images \\
        --wrappers "gymnasium.wrappers:FilterObservation(filter_keys=['image', 'direction'])"
"""

import sys
from importlib.util import find_spec

from p3s import Population, evaluate

# Without its third part, a sentence, which no network here reads.
WRAPPER = "gymnasium.wrappers:FilterObservation(filter_keys=['image', 'direction'])"

if __name__ == "__main__":
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 4_000
    if find_spec("minigrid") is None:
        sys.exit("this example needs MiniGrid: pip install minigrid")
    population = Population(
        "minigrid:MiniGrid-Empty-5x5-v0",
        wrappers=[WRAPPER],
        num_learners=2,
        hidden_sizes=(64, 64),
        scale_images=False,  # its numbers are kinds of things, colors and states
    )
    population.learn(steps)
    returns = evaluate(population, episodes=10)
    print(f"mean return {returns.mean():.2f}; the shortest way earns 0.955")
