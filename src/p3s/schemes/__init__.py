"""Ways of using a population, one file each, found by name."""

from __future__ import annotations

from p3s.schemes.base import Scheme
from p3s.schemes.cem import CEM
from p3s.schemes.center import Center
from p3s.schemes.distributed import Distributed
from p3s.schemes.dvd import DvD
from p3s.schemes.erl import ERL
from p3s.schemes.evorainbow import EvoRainbow
from p3s.schemes.p3s import P3S
from p3s.schemes.pb2 import PB2
from p3s.schemes.pbt import PBT
from p3s.schemes.resetting import Resetting
from p3s.schemes.rollout import OnPolicyRollout
from p3s.schemes.sharing import Sharing
from p3s.schemes.single import Single

SCHEMES: dict[str, type[Scheme]] = {
    scheme.name: scheme
    for scheme in (
        P3S,
        Sharing,
        Resetting,
        Distributed,
        Center,
        CEM,
        ERL,
        PBT,
        PB2,
        DvD,
        EvoRainbow,
        Single,
        OnPolicyRollout,
    )
}

ALIASES = {"eso": "sharing", "re": "resetting", "drl": "distributed"}
"""The paper's names."""


def scheme_name(name: str) -> str:
    """The name in the registry of a scheme's name or the paper's name for it ('Re-TD3')."""
    if name in SCHEMES:
        return name
    plain = name.lower().removesuffix("-td3")
    return ALIASES.get(plain, plain)


__all__ = [
    "ALIASES",
    "CEM",
    "ERL",
    "P3S",
    "PB2",
    "PBT",
    "SCHEMES",
    "Center",
    "Distributed",
    "DvD",
    "EvoRainbow",
    "OnPolicyRollout",
    "Resetting",
    "Scheme",
    "Sharing",
    "Single",
    "scheme_name",
]
