"""Theorem 1 of the paper on finite MDPs, where every quantity in it can be computed exactly.

    from p3s.theory import from_arrays, guided_update, theorem_1a
    update = guided_update(from_arrays(transition, reward, 0.9), log_old, log_best, beta=1.0)
    theorem_1a(update).margin        # how far the inequality is from failing

docs/theory.md explains the results; `p3s theory` prints the check and draws the figures.
"""

from p3s.theory.lemmas import a1_holds, a2_holds, theorem_1a
from p3s.theory.mdp import from_arrays
from p3s.theory.update import guided_update

__all__ = ["a1_holds", "a2_holds", "from_arrays", "guided_update", "theorem_1a"]
