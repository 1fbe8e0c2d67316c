# SPDX-License-Identifier: Apache-2.0
"""`WrenchEstimator`: configured and compiled once, then one call per sample; what a node holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from multibody_estimation._jax import jax, jnp
from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.tree.model import Model
from multibody_estimation.wrench import equations
from multibody_estimation.wrench.observability import Observability, observe
from multibody_estimation.wrench.outliers import solve_gated
from multibody_estimation.wrench.posterior import Block, Posterior, solve
from multibody_estimation.wrench.program import Program, compile_wrench
from multibody_estimation.wrench.settings import Prior, WrenchSetup

__all__ = ['WrenchEstimator', 'WrenchSample', 'base_velocity_from_gyroscopes', 'default_blocks']


@lru_cache(maxsize=16)
def _base_velocity(shape: equations.Shape) -> Any:
    def one(t, q, dq, y, weight):
        def predict(om):
            w = equations.kinematics(shape, t, q, dq, om)[3]
            return (t.rows.Y[:, :3] * w[t.rows.node]).sum(-1) + t.rows.offset

        J, r = jax.jacfwd(predict)(jnp.zeros(3)), y - predict(jnp.zeros(3))
        A = (J.T * weight) @ J
        return jnp.linalg.solve(A, J.T @ (weight * r))

    return jax.jit(jax.vmap(one, in_axes=(None, 0, 0, 0, 0)))


def base_velocity_from_gyroscopes(program: Program, position: Any, velocity: Any, measurements: Any) -> np.ndarray:
    """Angular velocity of a floating base in its frame that fits all gyroscopes best, wherever they sit; (N, 3) [rad/s]."""
    y = np.asarray(measurements, dtype=float)
    if not program.floating:
        return np.zeros((len(y), 3))
    weight = np.zeros_like(y)
    for x in program.terms:
        if x.target == 'velocity':
            at = slice(x.row, x.row + 3)
            variance = np.diag(x.sensor.covariance())
            weight[:, at] = np.where(np.isfinite(y[:, at]).all(1, keepdims=True), 1 / variance, 0.0)
    blind = np.flatnonzero(~weight.any(1))
    if len(blind):
        raise EstimationError(
            f'The angular velocity of the base is not known in sample {blind[0]}: no gyroscope tells it. Give base_velocity, add a gyroscope, or say floating: false.'
        )
    t = equations.tables(program)
    return np.asarray(
        _base_velocity(equations.shape(program))(
            t, np.asarray(position, float), np.asarray(velocity, float), np.nan_to_num(y), weight
        )
    )


def default_blocks(program: Program) -> tuple[Block, ...]:
    """External wrenches of the contacts, and torque and acceleration of every joint."""
    joints = program.joint_names
    return (
        *(Block('external_wrench', link) for link in program.setup.contacts),
        *(Block('joint_torque', joint) for joint in joints),
        *(Block('joint_acceleration', joint) for joint in joints),
    )


@dataclass(frozen=True, eq=False)
class WrenchSample:
    """Answer for one sample."""

    posterior: Posterior
    missing: tuple[str, ...]
    """Sensors that gave nothing, or not a number."""
    outliers: Mapping[str, float]
    """Sensors left out by their gate, with their residual in standard deviations."""
    normalised: Mapping[str, float]
    """Residual of each gated sensor that was there, in standard deviations (root of the squared sum per degree of freedom)."""
    notes: tuple[str, ...]
    """What is not as it should be, in sentences; what only priors decide is among it."""

    @property
    def joint_torques(self) -> np.ndarray:
        """(n,) [N m or N]."""
        return self.posterior.joint_torques[0]

    @property
    def joint_accelerations(self) -> np.ndarray:
        """(n,)."""
        return self.posterior.joint_accelerations[0]

    def wrench(self, link: str) -> np.ndarray:
        """External wrench on a link, in its frame about its origin; (6,) [N, N m]."""
        return self.posterior.wrench(link)[0]

    def covariance(self, quantity: str, of: str) -> np.ndarray:
        """Marginal covariance of a block; (6, 6) or (1, 1)."""
        return self.posterior.covariance(quantity, of)[0]

    def deviation(self, quantity: str, of: str) -> np.ndarray:
        """Standard deviations of a block."""
        return self.posterior.deviation(quantity, of)[0]

    def __str__(self) -> str:
        lines = []
        for quantity, of in self.posterior.blocks:
            if quantity == 'external_wrench':
                w, s = self.wrench(of), self.deviation(quantity, of)
                lines.append(
                    f'{of}: force {w[:3].round(3).tolist()} ± {s[:3].round(3).tolist()} N, moment {w[3:].round(3).tolist()} ± {s[3:].round(3).tolist()} N m'
                )
        return '\n'.join([*lines, *self.notes])


class WrenchEstimator:
    """Problem 1 for a live system.

    estimator = WrenchEstimator(model, setup)
    print(estimator.observability)
    sample = estimator.step({'l_arm_ft': wrench, ...}, position, velocity)
    sample.wrench('l_forearm'), sample.covariance('external_wrench', 'l_forearm')
    """

    def __init__(
        self, model: Model, setup: WrenchSetup, blocks: Sequence[Block | tuple[str, str]] | None = None, twin: bool = False
    ) -> None:
        self.program = compile_wrench(model, setup)
        self.chosen = None if blocks is None else tuple(Block(*b) for b in blocks)
        self.twin = twin
        self.samples = 0
        # The first call compiles: it is made here, so that the first sample is as fast as all others.
        n = len(self.program.joint_names)
        for values in (np.zeros((1, setup.size)), np.full((1, setup.size), np.nan)):
            solve(self.program, np.zeros((1, n)), np.zeros((1, n)), np.zeros((1, 3)), values, blocks=self.blocks, twin=twin)

    @property
    def setup(self) -> WrenchSetup:
        return self.program.setup

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Blocks whose covariance each sample carries."""
        return default_blocks(self.program) if self.chosen is None else self.chosen

    @cached_property
    def observability(self) -> Observability:
        """What sensors and equations determine; computed once per set of contacts."""
        return observe(self.program)

    def set_contacts(self, contacts: Mapping[str, Prior] | Sequence[str]) -> Observability:
        """Choose the links on which the world may act, at run time; returns what can now be told."""
        self.program = compile_wrench(self.program.model, self.setup.with_contacts(contacts))
        self.__dict__.pop('observability', None)
        return self.observability

    def vector(self, measurements: Mapping[str, Any]) -> tuple[np.ndarray, tuple[str, ...]]:
        """Measurement vector from values by sensor name, NaN where there is none; and the names of those that are missing."""
        rows = self.setup.rows
        for name in measurements:
            if name not in rows:
                raise EstimationError(f"There is no sensor '{name}'.{did_you_mean(name, rows)}")
        y, missing = np.full(self.setup.size, np.nan), []
        for name, at in rows.items():
            value = measurements.get(name)
            if value is not None:
                x = np.asarray(value, dtype=float).ravel()
                if x.size != at.stop - at.start:
                    raise EstimationError(f"Sensor '{name}' gave {x.size} numbers; {at.stop - at.start} are needed.")
                if np.isfinite(x).all():
                    y[at] = x
                    continue
            missing.append(name)
        return y, tuple(missing)

    def step(self, measurements: Mapping[str, Any], position: Any, velocity: Any, base_velocity: Any = None) -> WrenchSample:
        """Estimate from one sample: values by sensor name, joint positions and velocities (n,), base angular velocity (3,)."""
        y, missing = self.vector(measurements)
        q, dq = (np.asarray(x, dtype=float)[None] for x in (position, velocity))
        if base_velocity is None:
            base_velocity = base_velocity_from_gyroscopes(self.program, q, dq, y[None])[0]
        om = np.asarray(base_velocity, dtype=float)[None]
        found, square, degrees, out = solve_gated(self.program, q, dq, om, y[None], self.blocks, twin=self.twin)
        gated = [x.sensor.name for x in self.program.terms if x.sensor.gate is not None]
        size = {name: float(np.sqrt(square[0, c] / degrees[0, c])) for c, name in enumerate(gated) if degrees[0, c]}
        outliers = {name: size[name] for c, name in enumerate(gated) if out[0, c]}
        self.samples += 1
        notes = [f'{name} gave no number and was left out of sample {self.samples}.' for name in missing if name in measurements]
        notes += [
            f'{name} was left out of sample {self.samples}: it is {x:.1f} standard deviations from what the others say.'
            for name, x in outliers.items()
        ]
        notes += self.observability.sentences
        return WrenchSample(found, missing, outliers, size, tuple(notes))
