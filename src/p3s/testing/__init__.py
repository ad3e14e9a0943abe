"""Contract tests for authors of algorithms and schemes; the package's own run through them too.

    from p3s.testing import check_algorithm, check_scheme
    check_algorithm("mypackage.awac:AWAC")
    check_scheme("mypackage.mine:Mine", algorithm="sac")

Each is a plain function: it returns nothing, or raises `ContractError` with one sentence that says
what is broken. Both take the class, or its name as the command line does; and fields, for values
with which every other field does something in a few updates. `ALGORITHM_CHECKS` and
`SCHEME_CHECKS` are the single checks, each a function of an `AlgorithmCase` or a `SchemeCase`.

    programs.py     traced programs, trees compared, other values of fields
    cases.py        an algorithm or a scheme in a small world
    algorithms.py   init, actions, distance;  steps.py   learning;  fields.py   none is dead
    schemes.py      init, actions, learning, reviews, shards
"""

from p3s.testing.algorithms import ALGORITHM_CHECKS, check_algorithm
from p3s.testing.cases import AlgorithmCase, SchemeCase, small_algorithm, small_scheme
from p3s.testing.programs import SPECS, ContractError
from p3s.testing.schemes import SCHEME_CHECKS, check_scheme

__all__ = [
    "ALGORITHM_CHECKS",
    "SCHEME_CHECKS",
    "SPECS",
    "AlgorithmCase",
    "ContractError",
    "SchemeCase",
    "check_algorithm",
    "check_scheme",
    "small_algorithm",
    "small_scheme",
]
