"""Theorem 1 of the paper on finite MDPs, where every quantity in it can be computed exactly.

    from p3s.theory import from_arrays, guided_update, theorem_1a
    update = guided_update(from_arrays(transition, reward, 0.9), log_old, log_best, beta=1.0)
    theorem_1a(update).margin        # how far the inequality is from failing

docs/theory.md explains the results; `p3s theory` prints the check and draws the figures.
"""

from p3s.theory.lemmas import (
    ASSUMPTIONS,
    STATEMENTS,
    Sides,
    a1_holds,
    a2_holds,
    assumed,
    corrected_a2_holds,
    exact_improvement,
    lemma_1,
    lemma_2,
    lemma_3,
    lemma_4,
    lemma_5,
    monotone_improvement,
    proposition_1,
    proposition_2,
    theorem_1a,
    theorem_1b,
)
from p3s.theory.mdp import FiniteMDP, action_values, from_arrays, start_value, state_values
from p3s.theory.policies import augmented_loss, guided_policy, kl, normalize, total_variation
from p3s.theory.tabular import History, Tabular, best_values, optimal_value, run_tabular
from p3s.theory.update import (
    GuidedUpdate,
    guided_update,
    improvement,
    improvement_gap,
    lemma_5_constants,
    smallest_threshold,
    threshold,
)
from p3s.theory.worlds import deceptive_chain, trap_grid

__all__ = [
    "ASSUMPTIONS",
    "STATEMENTS",
    "FiniteMDP",
    "GuidedUpdate",
    "History",
    "Sides",
    "Tabular",
    "a1_holds",
    "a2_holds",
    "action_values",
    "assumed",
    "augmented_loss",
    "best_values",
    "corrected_a2_holds",
    "deceptive_chain",
    "exact_improvement",
    "from_arrays",
    "guided_policy",
    "guided_update",
    "improvement",
    "improvement_gap",
    "kl",
    "lemma_1",
    "lemma_2",
    "lemma_3",
    "lemma_4",
    "lemma_5",
    "lemma_5_constants",
    "monotone_improvement",
    "normalize",
    "optimal_value",
    "proposition_1",
    "proposition_2",
    "run_tabular",
    "smallest_threshold",
    "start_value",
    "state_values",
    "theorem_1a",
    "theorem_1b",
    "threshold",
    "total_variation",
    "trap_grid",
]
