"""Batch renormalization with a short warm-up, so that tests reach what comes after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from p3s import networks
from p3s.plugins.loading import register


@register
@dataclass(frozen=True, kw_only=True)
class BatchRenorm(networks.BatchRenorm):
    """The library's, with two passes of plain batch normalization."""

    name: ClassVar[str] = "test_batch_renorm"
    warm_up: ClassVar[int] = 2
