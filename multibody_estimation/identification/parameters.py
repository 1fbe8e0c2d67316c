# SPDX-License-Identifier: Apache-2.0
"""`Parameter`: a dotted name bound to a number of a model, with unit, start, bounds, prior and transform."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from multibody_estimation.errors import EstimationError, did_you_mean

__all__ = ['Parameter', 'check_names', 'select']

TRANSFORMS = ('none', 'log')


@dataclass(frozen=True)
class Parameter:
    """One number to be estimated.

    The name says where it lives: ``<link or joint>.<leaf>`` of the model, ``<signal>.<what>`` of an input or sensor
    (``command.delay``, ``command.gain``, ``encoders.offset.pendulum``), or any name at all when ``assign`` is given.
    """

    name: str
    start: float | None = None
    """First guess in ``unit``; None takes the model's own value."""
    lower: float = -math.inf
    upper: float = math.inf
    unit: str = ''
    transform: str = 'none'
    """``log`` searches the logarithm: for positive quantities of unknown magnitude."""
    prior: tuple[float, float] | None = None
    """Mean and standard deviation of what is known beforehand, in ``unit``; None: nothing."""
    scale: float | None = None
    """A typical change of it, in ``unit``; None: the size of the start."""
    fixed: bool = False
    label: str = ''
    """Name for people, e.g. ``arm inertia``; empty: the dotted name."""
    leaf: str = ''
    """Leaf of the model it sets, where that is not its name."""
    assign: Callable[[Any, Any], Any] | None = None
    """``assign(model, value) -> model`` for a parameter that is no single leaf (a lumped inertia, a tilt); pure, JAX-traceable."""

    def __post_init__(self) -> None:
        if not self.name:
            raise EstimationError('A parameter needs a name.')
        if self.transform not in TRANSFORMS:
            raise EstimationError(
                f"{self.name}: transform '{self.transform}' is unknown.{did_you_mean(self.transform, TRANSFORMS)}"
            )
        if math.isnan(self.lower) or math.isnan(self.upper) or not self.lower < self.upper:
            raise EstimationError(f'{self.name}: the lower bound {self.lower} must lie below the upper bound {self.upper}.')
        if self.start is not None:
            if not math.isfinite(self.start):
                raise EstimationError(f'{self.name}: the start {self.start} is not a finite number.')
            if not self.lower <= self.start <= self.upper:
                raise EstimationError(
                    f'{self.name}: the bounds [{self.lower:g}, {self.upper:g}] exclude the start {self.start:g}. '
                    'Move the start inside or widen the bounds.'
                )
            if self.transform == 'log' and not self.start > 0:
                raise EstimationError(f'{self.name}: a log transform needs a start above zero, not {self.start:g}.')
        if self.transform == 'log' and self.upper <= 0:
            raise EstimationError(f'{self.name}: a log transform needs an upper bound above zero, not {self.upper:g}.')
        if self.prior is not None and (len(self.prior) != 2 or not self.prior[1] > 0):
            raise EstimationError(f'{self.name}: a prior is (mean, standard deviation above zero), not {self.prior}.')
        if self.scale is not None and not self.scale > 0:
            raise EstimationError(f'{self.name}: scale {self.scale} must be above zero.')

    @property
    def title(self) -> str:
        """What people read in tables."""
        return self.label or self.name

    @property
    def target(self) -> str:
        """The model leaf it sets."""
        return self.leaf or self.name

    @property
    def step(self) -> float:
        """A typical change, never zero."""
        if self.scale is not None:
            return self.scale
        if self.start:
            return abs(self.start)
        span = self.upper - self.lower
        return span / 10 if math.isfinite(span) else 1.0

    def with_start(self, start: float) -> 'Parameter':
        """Return the parameter with another start, moved inside its bounds."""
        return replace(self, start=min(max(float(start), self.lower), self.upper))


def check_names(parameters: Iterable[Parameter]) -> tuple[Parameter, ...]:
    """Return the parameters as a tuple; two of one name are an error."""
    parameters = tuple(parameters)
    seen: set[str] = set()
    for parameter in parameters:
        if parameter.name in seen:
            raise EstimationError(f"The parameter '{parameter.name}' is listed twice.")
        seen.add(parameter.name)
    return parameters


def select(
    parameters: Iterable[Parameter], *, fix: Iterable[str] = (), start: Mapping[str, float] | None = None
) -> tuple[Parameter, ...]:
    """Return the parameters with some fixed and some starts replaced; an unknown name is an error that names its nearest."""
    parameters = check_names(parameters)
    known = [p.name for p in parameters]
    fix, start = tuple(fix), dict(start or {})
    for name in (*fix, *start):
        if name not in known:
            raise EstimationError(f"'{name}' is no parameter of this robot.{did_you_mean(name, known)}")
    out = []
    for parameter in parameters:
        if parameter.name in start:
            parameter = replace(parameter, start=float(start[parameter.name]))
        if parameter.name in fix:
            parameter = replace(parameter, fixed=True)
        out.append(parameter)
    return tuple(out)
