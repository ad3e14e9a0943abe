"""Ways of using a population, one file each, found by name."""

from __future__ import annotations

from p3s.schemes.base import Scheme
from p3s.schemes.p3s import P3S
from p3s.schemes.sharing import Sharing
from p3s.schemes.single import Single

SCHEMES: dict[str, type[Scheme]] = {scheme.name: scheme for scheme in (P3S, Sharing, Single)}

__all__ = ["P3S", "SCHEMES", "Scheme", "Sharing", "Single"]
