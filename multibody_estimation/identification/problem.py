# SPDX-License-Identifier: Apache-2.0
"""`Problem`: a form with recordings laid on its grid, ready to be solved; another recording needs no new compilation."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from multibody_estimation._jax import jax, jnp
from multibody_estimation.identification.binding import Binding, Key, bind
from multibody_estimation.identification.evaluation import SYMMETRIC, Evaluation, evaluation_of
from multibody_estimation.identification.grid import Grid, make_grid
from multibody_estimation.identification.joint_space import JointForm, joint_form, recorded
from multibody_estimation.identification.observations import Encoder
from multibody_estimation.identification.parameters import Parameter
from multibody_estimation.identification.robot import Robot
from multibody_estimation.identification.start import first_positions
from multibody_estimation.window import Window

__all__ = ['Problem', 'prepare']


@dataclass(frozen=True, eq=False)
class Problem:
    """What a solve takes."""

    form: JointForm
    binding: Binding
    grid: Grid
    windows: tuple[Window, ...]

    @cached_property
    def recorded(self) -> dict:
        """The recordings as arguments of the compiled functions."""
        return recorded(self.binding, self.grid)

    @cached_property
    def metric(self) -> jax.Array:
        """Damping metric of the states, (N, b): the information of the encoder with most samples, zero where there is no stage."""
        nq, block, n = self.form.nq, self.form.block, len(self.grid)
        main = max((s for s in self.grid.samples if isinstance(s.sensor, Encoder)), key=lambda s: int((s.weight > 0).sum()))
        strongest = float(main.weight.max())
        metric = np.zeros(-(-n * nq // block) * block)
        metric[: self.grid.count * nq] = strongest**2
        return jnp.asarray(metric.reshape(-1, block))

    def start(self) -> np.ndarray:
        """Joint positions (nq, n) from the encoders alone."""
        return first_positions(self.grid, self.form.nq, self.binding.offsets())

    def data(self, weight: float, **more: Any) -> dict:
        """Arguments of a solve.

        weight: allowed acceleration error (rad/s^2); reference (nq,): constant whitening; by_mass: whiten by the mass matrix instead;
        correction (nq, n-2): acceleration errors of the scheme; pin: information matrix and place that hold unseen directions;
        widen: factor on the width of dry friction's sign change.
        """
        nq, p = self.form.nq, len(self.binding.parameters)
        given = {
            'reference': np.ones(nq),
            'by_mass': False,
            'correction': np.zeros((nq, len(self.grid) - 2)),
            'pin': (np.zeros((p, p)), np.zeros(p)),
            'widen': 1.0,
        } | {k: v for k, v in more.items() if v is not None}
        scalars = {k: jnp.float64(given[k]) for k in ('by_mass', 'widen')}
        return self.recorded | given | scalars | {'sigma_a': jnp.float64(weight)}

    def with_windows(self, windows: Window | Sequence[Window]) -> 'Problem':
        """The same problem for other recordings; no compilation where they are no longer than these."""
        windows = (windows,) if isinstance(windows, Window) else tuple(windows)
        knots = max((len(t.time) for t in self.grid.inputs), default=0)
        grid = make_grid(self.binding.robot, windows, self.grid.step, stages=len(self.grid), knots=knots)
        form = _form(self.binding, grid, self.form.free, self.form.evaluation)
        return Problem(form, self.binding, grid, windows)

    def starting_at(self, values: Any) -> 'Problem':
        """The same problem with another start of the search."""
        moved = tuple(replace(p, start=float(v), scale=p.step) for p, v in zip(self.binding.parameters, values))
        return replace(self, binding=replace(self.binding, parameters=moved))


def _form(binding: Binding, grid: Grid, free: bool, evaluation: Evaluation) -> JointForm:
    at_stage = tuple(not s.lag.any() for s in grid.samples)
    return joint_form(Key(binding), at_stage, tuple(s.turns for s in grid.samples), free, evaluation)


def prepare(
    robot: Robot,
    windows: Window | Sequence[Window],
    parameters: Sequence[Parameter] | None = None,
    step: float | None = None,
    *,
    free: bool = True,
    evaluation: str | Evaluation = SYMMETRIC,
) -> Problem:
    """Bind the parameters and lay the recordings on the grid; the result can be solved many times, also `Problem.with_windows`.

    parameters: default the robot's own. free: False where they are known and only states are wanted.
    """
    windows = (windows,) if isinstance(windows, Window) else tuple(windows)
    binding = bind(robot, tuple(robot.parameters if parameters is None else parameters))
    grid = make_grid(binding.robot, windows, step)
    return Problem(_form(binding, grid, free, evaluation_of(evaluation)), binding, grid, windows)
