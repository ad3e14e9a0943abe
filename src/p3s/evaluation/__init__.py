"""Evaluations: the paper's protocol, and who plays its episodes.

queue (of a run) → protocol → playing (in this process), workers (in others)
"""

from p3s.evaluation.protocol import Evaluator
from p3s.evaluation.queue import EvaluationQueue

__all__ = ["EvaluationQueue", "Evaluator"]
