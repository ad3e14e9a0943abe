"""Ways of using a population, one file each, found by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from p3s.registry import Listed, Registry

if TYPE_CHECKING:
    from p3s.schemes.base import Scheme
    from p3s.schemes.cem import CEM
    from p3s.schemes.center import Center
    from p3s.schemes.distributed import Distributed
    from p3s.schemes.dvd import DvD
    from p3s.schemes.erl import ERL
    from p3s.schemes.evorainbow import EvoRainbow
    from p3s.schemes.mf_pbt import MFPBT
    from p3s.schemes.p3s import P3S
    from p3s.schemes.pb2 import PB2
    from p3s.schemes.pbt import PBT
    from p3s.schemes.resetting import Resetting
    from p3s.schemes.rollout import OnPolicyRollout
    from p3s.schemes.sharing import Sharing
    from p3s.schemes.single import Single

SCHEMES: Registry[Scheme] = Registry(
    {
        "p3s": Listed(
            "p3s.schemes.p3s:P3S",
            "The best learner guides the others softly, and the pull adapts.",
            "P3S (Section 3, Appendix H)",
        ),
        "sharing": Listed(
            "p3s.schemes.sharing:Sharing",
            "N learners share one replay and nothing else.",
            "ESO, experience-sharing only (Section 4.2)",
        ),
        "resetting": Listed(
            "p3s.schemes.resetting:Resetting",
            "The best policy is copied to all other learners now and then.",
            "Re, resetting (Section 4.2)",
        ),
        "distributed": Listed(
            "p3s.schemes.distributed:Distributed",
            "One learner acts in N environment copies.",
            "DRL, distributed RL (Section 4.2)",
        ),
        "center": Listed(
            "p3s.schemes.center:Center",
            "All learners are pulled to a center policy that follows them.",
            "Center-TD3 (Appendix E)",
        ),
        "cem": Listed(
            "p3s.schemes.cem:CEM",
            "Policies are drawn around the best ones; half of them take gradient steps.",
            "CEM-TD3 (Appendix D)",
        ),
        "erl": Listed(
            "p3s.schemes.erl:ERL",
            "Policies evolve; a gradient learner learns from them and joins them at times.",
            "ERL, evolutionary RL (Appendix F)",
        ),
        "pbt": Listed(
            "p3s.schemes.pbt:PBT",
            "The worst learners take over the best ones' weights and perturbed hyper-parameters.",
            "PBT, population-based training (Section 2)",
        ),
        "pb2": Listed(
            "p3s.schemes.pb2:PB2",
            "PBT in which a Gaussian process chooses the hyper-parameters, within bounds.",
            "PB2, population-based bandits (Parker-Holder et al. 2020)",
        ),
        "mf_pbt": Listed(
            "p3s.schemes.mf_pbt:MFPBT",
            "PBT in groups that select at different periods, between which the best migrate.",
            "MF-PBT, multiple-frequencies PBT (2025)",
        ),
        "dvd": Listed(
            "p3s.schemes.dvd:DvD",
            "Learners share one replay and are pushed apart, as hard as a bandit finds good.",
            "DvD, diversity via determinants (Parker-Holder et al. 2020)",
        ),
        "evorainbow": Listed(
            "p3s.schemes.evorainbow:EvoRainbow",
            "Policies are drawn around the best ones, and one learner follows them.",
            "EvoRainbow-Exp (Li et al. 2024)",
        ),
        "single": Listed(
            "p3s.schemes.single:Single",
            "One learner: the base algorithm as it is.",
            "original algorithm (Section 4.2)",
        ),
        "rollout": Listed(
            "p3s.schemes.rollout:OnPolicyRollout",
            "One learner that learns from its own rollouts: PPO, ACKTR.",
            "original on-policy algorithm (Section 4.2)",
        ),
    }
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


__all__ = [
    "ALIASES",
    "CEM",
    "ERL",
    "MFPBT",
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
