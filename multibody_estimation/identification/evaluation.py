# SPDX-License-Identifier: Apache-2.0
"""Where in a time step the forces are evaluated: in its middle (second order), or at the points of a given simulator.

Parameters identified with a stepper's own points are those with which that stepper repeats the motion ("shadow parameters"); at large
steps they differ from the physical ones. Between the stages k-1, k, k+1 a point is told by its shift s: velocity there is v + s a, with
the central difference v; -h/2 is the backward quotient, +h/2 the forward one.
"""

from dataclasses import dataclass
from typing import Any

from multibody_estimation.errors import EstimationError, did_you_mean

__all__ = ['EVALUATIONS', 'MUJOCO', 'SEMI_IMPLICIT', 'SYMMETRIC', 'Evaluation', 'evaluation_of']


@dataclass(frozen=True)
class Evaluation:
    """A scheme."""

    name: str
    coriolis: float = 0.0
    """Shift of the velocity in Coriolis and centrifugal forces, in steps."""
    damping: float = 0.0
    """Shift of the velocity in viscous friction, in steps."""
    friction: float = 0.0
    """Shift of the velocity in dry friction, in steps."""
    lead: float = 0.0
    """Further shift of the velocity in dry friction, in seconds."""
    sharp: bool = False
    """Whether the sign change of dry friction starts wide and is narrowed during the search."""

    def shifts(self, step: Any) -> tuple[Any, Any, Any]:
        """Seconds from the middle, for Coriolis forces, damping and dry friction."""
        return self.coriolis * step, self.damping * step, self.friction * step + self.lead


SYMMETRIC = Evaluation('symmetric')
SEMI_IMPLICIT = Evaluation('semi_implicit', coriolis=-0.5, damping=-0.5, friction=-0.5)
"""Semi-implicit (symplectic) Euler, all forces at the state before the step."""
MUJOCO = Evaluation('mujoco', coriolis=-0.5, damping=0.5, friction=-0.5, lead=0.0095, sharp=True)
"""MuJoCo's `Euler` and `implicitfast`: damping at the end of the step; `frictionloss` is a soft constraint that drives v + a / b to zero,
1/b = dmax timeconst / 2 = 0.95 * 0.02 s / 2 with its default solreffriction and solimpfriction."""
EVALUATIONS = {e.name: e for e in (SYMMETRIC, SEMI_IMPLICIT, MUJOCO)}


def evaluation_of(name: str | Evaluation) -> Evaluation:
    """The scheme of a name."""
    if isinstance(name, Evaluation):
        return name
    if name not in EVALUATIONS:
        raise EstimationError(f"evaluation is '{name}'.{did_you_mean(name, EVALUATIONS)}")
    return EVALUATIONS[name]
