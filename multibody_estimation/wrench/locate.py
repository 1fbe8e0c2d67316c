# SPDX-License-Identifier: Apache-2.0
"""On which link is the robot touched? Each candidate is a hypothesis of its own; the evidence of the data judges between them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from multibody_estimation.errors import EstimationError
from multibody_estimation.tree.model import Model
from multibody_estimation.wrench.posterior import log_evidence
from multibody_estimation.wrench.program import compile_wrench
from multibody_estimation.wrench.settings import Prior, WrenchSetup

__all__ = ['ContactEvidence', 'locate_contact']


@dataclass(frozen=True)
class ContactEvidence:
    """Log evidence of "the world touches this link, and beside it only the links that are contacts anyway"."""

    evidence: Mapping[str, float]
    """By candidate; ``''`` for no further contact."""

    @property
    def link(self) -> str:
        """The best candidate; '' where no contact explains the data best."""
        return max(self.evidence, key=lambda k: self.evidence[k])

    @property
    def probabilities(self) -> dict[str, float]:
        """Of each candidate, all equally likely beforehand."""
        x = np.array(list(self.evidence.values()))
        p = np.exp(x - x.max())
        return dict(zip(self.evidence, (p / p.sum()).tolist()))

    def __str__(self) -> str:
        best = self.link
        return f'{f"The robot is touched on {best}" if best else "Nothing touches the robot"} (probability {self.probabilities[best]:.3f}).'


def locate_contact(
    model: Model, setup: WrenchSetup, candidates: Sequence[str], position: Any, velocity: Any, base_velocity: Any, measurements: Any,
    force: float = 30.0, reach: float = 0.1,
) -> ContactEvidence:  # fmt: skip
    """Judge where a single contact is, from N samples during which it lasts.

    The wrench of a candidate has a force of about ``force`` [N] at a point within about ``reach`` [m] of the link's origin; the contacts
    of the setup stay as they are.
    """
    if not candidates:
        raise EstimationError('Name at least one link as a candidate.')
    prior = Prior((force,) * 3 + (force * reach,) * 3)
    out: dict[str, float] = {}
    for name in ('', *candidates):
        if name in setup.contacts:
            raise EstimationError(f"'{name}' is a contact of the setup already; candidates are other links.")
        contacts = dict(setup.contacts) | ({name: prior} if name else {})
        program = compile_wrench(model, setup.replace(contacts=contacts))
        out[name] = float(log_evidence(program, position, velocity, base_velocity, measurements).sum())
    return ContactEvidence(out)
