"""What `p3s train` and `p3s resume` say before jax is imported, which takes a second or more."""

from __future__ import annotations

from itertools import pairwise

from p3s.algorithms import ALGORITHMS
from p3s.plugins.loading import check_known
from p3s.schemes import SCHEMES, scheme_name


def say_first(arguments: list[str]) -> None:
    """Refuse names that nobody knows, and say that something is going on."""
    if "-h" in arguments or "--help" in arguments:
        return
    scheme, algorithm = value_of("--scheme", arguments), value_of("--algorithm", arguments)
    if scheme is not None and ":" not in scheme:
        check_known(SCHEMES, "scheme", scheme_name(scheme))
    if algorithm is not None and ":" not in algorithm:
        check_known(ALGORITHMS, "algorithm", algorithm.lower())
    print("loading jax ...", flush=True)


def value_of(option: str, arguments: list[str]) -> str | None:
    """The last value that a command line gives to an option; None without one."""
    found = None
    for word, following in pairwise([*arguments, ""]):
        if word == option and following:
            found = following
        elif word.startswith(f"{option}="):
            found = word.partition("=")[2]
    return found
