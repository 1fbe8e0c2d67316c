# SPDX-License-Identifier: Apache-2.0
"""Robots from a table of parameters: the same rows give the start of an identification and the truth of a simulation."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from multibody_estimation.identification.binding import with_values
from multibody_estimation.identification.observations import Input, Observation
from multibody_estimation.identification.parameters import Parameter
from multibody_estimation.identification.robot import Robot

__all__ = ['Row', 'make']


class Row(NamedTuple):
    """One parameter: what it is in the simulated robot, and where a search for it starts."""

    name: str
    title: str
    unit: str
    truth: float
    start: float
    lower: float = -np.inf
    upper: float = np.inf
    scale: float | None = None


def make(
    name: str, model: Any, inputs: Iterable[Input], sensors: Iterable[Observation], rows: Iterable[Row], *, truth: bool, **settings: Any
) -> Robot:  # fmt: skip
    """Return the robot with its numbers at the start of the search, or at the truth."""
    rows = tuple(rows)
    parameters = tuple(
        Parameter(r.name, r.truth if truth else r.start, lower=r.lower, upper=r.upper, unit=r.unit, label=r.title,
                  scale=r.scale if r.scale is not None else abs(r.start))
        for r in rows
    )  # fmt: skip
    robot = Robot(name, model, tuple(inputs), tuple(sensors), parameters, settings)
    return with_values(robot, {p.name: p.start for p in parameters if p.start is not None})
