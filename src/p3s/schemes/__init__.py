"""Ways of using a population, one file each, found by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from p3s.registry import Listed, Registry

if TYPE_CHECKING:
    from p3s.schemes.base import Scheme

SCHEMES: Registry[Scheme] = Registry(
    "p3s.schemes",
    {
        "p3s": Listed("P3S", "P3S (Section 3, Appendix H)"),
        "sharing": Listed("Sharing", "ESO, experience-sharing only (Section 4.2)"),
        "resetting": Listed("Resetting", "Re, resetting (Section 4.2)"),
        "distributed": Listed("Distributed", "DRL, distributed RL (Section 4.2)"),
        "center": Listed("Center", "Center-TD3 (Appendix E)"),
        "cem": Listed("CEM", "CEM-TD3 (Appendix D)"),
        "erl": Listed("ERL", "ERL, evolutionary RL (Appendix F)"),
        "pbt": Listed("PBT", "PBT, population-based training (Section 2)"),
        "pb2": Listed("PB2", "PB2, population-based bandits (Parker-Holder et al. 2020)"),
        "mf_pbt": Listed("MFPBT", "MF-PBT, multiple-frequencies PBT (2025)"),
        "dvd": Listed("DvD", "DvD, diversity via determinants (Parker-Holder et al. 2020)"),
        "evorainbow": Listed("EvoRainbow", "EvoRainbow-Exp (Li et al. 2024)"),
        "single": Listed("Single", "original algorithm (Section 4.2)"),
        "rollout": Listed("OnPolicyRollout", "original on-policy algorithm (Section 4.2)"),
    },
)

ALIASES = {"eso": "sharing", "re": "resetting", "drl": "distributed"}
"""The paper's names."""


def scheme_name(name: str) -> str:
    """The name in the registry of a scheme's name or the paper's name for it ('Re-TD3')."""
    if name in SCHEMES:
        return name
    plain = name.lower().removesuffix("-td3")
    return ALIASES.get(plain, plain)


def __getattr__(name: str) -> Any:
    if name == "Scheme":
        from p3s.schemes.base import Scheme

        return Scheme
    return SCHEMES.class_named(name)


__all__ = ["ALIASES", "SCHEMES", "Scheme", "scheme_name"]
