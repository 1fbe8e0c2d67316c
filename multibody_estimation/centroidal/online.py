# SPDX-License-Identifier: Apache-2.0
"""The estimator as a node uses it: configured and compiled once, then one call per sample, without ROS.

    estimator = OnlineCentroidal.configure(load_centroidal_setup('robot.yaml'), period=0.005)        # compiles: seconds
    estimator, now = estimator.step(stamp, positions, velocities, {'ft/left/wrench': w, 'ft/right/wrench': v}, gyroscope=g)
    now['center_of_mass'], now.deviation('center_of_mass'), now.wrench, now.wrench_covariance, now.delayed['linear_momentum']

The estimator is a value: `step` returns its successor and leaves it as it was, so a refused sample changes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from multibody_estimation._jax import jax, jnp, value
from multibody_estimation.centroidal.body import WholeBody
from multibody_estimation.centroidal.lag import LagSmoother, Sample, push, start_lag_smoother
from multibody_estimation.centroidal.model import BLOCKS, StateLayout
from multibody_estimation.centroidal.result import physical
from multibody_estimation.centroidal.setup import CentroidalSetup
from multibody_estimation.centroidal.whole_body import Footholds, Instant, Measured, measure_instant, stand
from multibody_estimation.errors import EstimationError, did_you_mean

__all__ = ['CentroidalNow', 'CentroidalState', 'OnlineCentroidal']


@dataclass(frozen=True, eq=False)
class CentroidalState:
    """The centroidal state at one instant, world axes, SI units."""

    stamp: int
    """Nanoseconds, on the clock of the samples."""
    states: np.ndarray
    """(nx,)."""
    covariance: np.ndarray
    """(nx, nx)."""
    layout: StateLayout

    def __getitem__(self, part: str) -> np.ndarray:
        """Return a part by name: ``center_of_mass``, ``linear_momentum``, ``angular_momentum``, ``force``, ``moment``, ...; (3,)."""
        return self.states[self.layout[part]]

    def deviation(self, part: str) -> np.ndarray:
        """Return its standard deviations; (3,)."""
        return np.sqrt(np.diagonal(self.covariance)[self.layout[part]])

    def covariance_of(self, part: str) -> np.ndarray:
        """Return its covariance; (3, 3)."""
        return self.covariance[self.layout[part], self.layout[part]]

    @property
    def wrench(self) -> np.ndarray:
        """Total force, N, and moment about the center of mass, N m, on the robot, without gravity; (6,)."""
        return self.states[self.layout['force'].start : self.layout['moment'].stop]

    @property
    def wrench_covariance(self) -> np.ndarray:
        """Of force, then moment; (6, 6)."""
        both = slice(self.layout['force'].start, self.layout['moment'].stop)
        return self.covariance[both, both]


@dataclass(frozen=True, eq=False)
class CentroidalNow(CentroidalState):
    """What one step gives: the state at the newest sample, and with it the one that all samples within the lag have smoothed."""

    delayed: CentroidalState
    """State at the oldest sample of the window: better, and late by the lag."""
    standing: dict[str, bool]
    """Whether each contact stands."""
    base_position: np.ndarray
    """Of the base in the world of the footholds, m; (3,)."""
    base_rotation: np.ndarray
    """Base to world; (3, 3)."""
    converged: bool


@value
class _Memory:
    footholds: Footholds
    smoother: LagSmoother
    switched_at: jax.Array
    """s."""


def _sample(seen: Measured, time: jax.Array, there: Mapping[str, jax.Array], switching: jax.Array) -> Sample:
    """Turn what was measured into a sample of the blocks of ``there``; a block that is not there has no information."""
    information = {b: jnp.where(there[b], jnp.linalg.inv(seen.covariance[b]), 0.0) for b in there}
    return Sample(time, {b: seen.values[b] for b in there}, information, seen.anchor, switching)


@value
class _There:
    """Which readings of an instant are new."""

    pose: Any
    wrenches: Any
    rates: Any

    def of(self, seen: Measured, blocks: tuple[str, ...]) -> dict[str, jax.Array]:
        known = {'center_of_mass': self.pose & seen.supported, 'contact_wrench': self.wrenches}
        return {b: known.get(b, self.rates & seen.supported) for b in blocks}


NOTHING = _There(*[np.bool_(False)] * 3)


@partial(jax.jit, static_argnames=('blocks',))
def _first(body: WholeBody, now: Instant, there: _There, blocks: tuple[str, ...]):
    footholds, seen = measure_instant(body, stand(body, now), now)
    return footholds, seen, _sample(seen, jnp.zeros(()), there.of(seen, blocks), jnp.array(False))


@partial(jax.jit, static_argnames=('blocks',))
def _advance(body: WholeBody, memory: _Memory, now: Instant, time, width, there: _There, blocks: tuple[str, ...]):
    footholds, seen = measure_instant(body, memory.footholds, now)
    switched_at = jnp.where(seen.switched, time, memory.switched_at)
    sample = _sample(seen, time, there.of(seen, blocks), time - switched_at <= width)
    smoother, window, newest = push(memory.smoother, sample)
    ends = jnp.array([newest, 0])
    told = window.states[ends], window.covariance[ends], smoother.problem.time[0], window.status
    return _Memory(footholds, smoother, switched_at), seen.base_position, seen.base_rotation, told


@dataclass(frozen=True, eq=False)
class OnlineCentroidal:
    """Fixed-lag centroidal estimator over a whole body's sensors; make it with `configure`, then call `step`."""

    setup: CentroidalSetup
    blocks: tuple[str, ...]
    period: float
    """s."""
    lag: int
    """Samples."""
    start: int = 0
    """Stamp of the first sample, nanoseconds."""
    last: int | None = None
    """Stamp of the newest sample."""
    now: Instant | None = None
    memory: _Memory | None = None

    @classmethod
    def configure(cls, setup: CentroidalSetup, period: float, *, warm_up: bool = True) -> 'OnlineCentroidal':
        """Prepare for samples that come every ``period`` s; compiles everything, so that the first real sample does not wait.

        The IMU's acceleration is not used online: it needs the joint accelerations of the same instant.
        """
        if not (np.isfinite(period) and period > 0):
            raise EstimationError(f'A period of {period} s: the time between samples must be above zero.')
        blocks = tuple(b for b in setup.measures if b in BLOCKS and b != 'acceleration')
        if 'contact_wrench' not in blocks:
            raise EstimationError('No contact at all: contact_wrench must be among what is measured.')
        estimator = cls(setup, blocks, period, max(1, round(setup.lag / period)))
        if warm_up:
            body = setup.body
            share = np.zeros((len(body.contacts), 6))
            share[:, 2] = 9.81 * body.mass / len(share)
            trial, rest = estimator, np.zeros(len(body.model.joint_names))
            more = {'gyroscope': np.zeros(3)} if body.imu else {}
            more |= {'orientation': np.array([1.0, 0, 0, 0])} if body.imu_orientation else {}
            for k in range(2):
                trial, _ = trial.step(k * int(period * 1e9), rest, rest, share, **more)
        return estimator

    def step(
        self,
        stamp: int,
        positions: Mapping[str, float] | Sequence[float] | np.ndarray,
        velocities: Mapping[str, float] | Sequence[float] | np.ndarray | None = None,
        wrenches: Mapping[str, Any] | np.ndarray | None = None,
        *,
        gyroscope: np.ndarray | None = None,
        orientation: np.ndarray | None = None,
    ) -> tuple['OnlineCentroidal', CentroidalNow]:
        """Take one sample; return the successor and the estimate.

        Args:
            stamp: nanoseconds, above the last one.
            positions: joint angles, rad, by joint name or in the model's order.
            velocities: joint rates, rad/s; None where they did not come: no momentum is measured then.
            wrenches: on the robot at each contact in its frame (6,), N and N m, by the contacts' signal names, or (nc, 6) in
                their order; None where they did not come.
            gyroscope: rad/s, IMU's axes; needed with ``velocities`` where the setup has an IMU.
            orientation: IMU to world, w x y z; needed where the setup takes the robot's orientation from it.
        """
        if self.last is not None and stamp <= self.last:
            raise EstimationError(
                f'Time runs backwards or stands still: stamp {stamp} ns after {self.last} ns. The sample was left out.'
            )
        body = self.setup.body
        joints = body.model.joint_names
        rates_there = velocities is not None and (gyroscope is not None or not body.imu)
        if body.imu_orientation and orientation is None:
            raise EstimationError("The orientation of the IMU is missing; the setup takes the robot's orientation from it.")
        if wrenches is None and self.now is None:
            raise EstimationError('No contact at all: the first sample must bring the contact wrenches.')
        now = Instant(
            _ordered(positions, joints, 'positions'),
            _ordered(velocities, joints, 'velocities') if rates_there else np.zeros(len(joints)),
            self.now.wrenches if wrenches is None and self.now is not None else self._wrenches(wrenches),
            _vector(gyroscope, 3, 'gyroscope') if rates_there and body.imu else np.zeros(3),
            _vector(orientation, 4, 'orientation') if body.imu_orientation else np.array([1.0, 0.0, 0.0, 0.0]),
        )
        there = _There(np.bool_(True), np.bool_(wrenches is not None), np.bool_(rates_there))
        if self.memory is None or self.last is None:
            return self._begin(stamp, now, there)
        time, before = (stamp - self.start) * 1e-9, (self.last - self.start) * 1e-9
        width, memory = np.float64(self.setup.process.switch_width), self.memory
        if time - before > 2.5 * self.period:  # over one long step a force may do more than change evenly
            count = min(int(np.ceil((time - before) / self.period)), self.lag + 1)
            for t in np.linspace(before, time, count + 1)[1:-1]:
                memory, *_ = _advance(body, memory, self.now, t, width, NOTHING, blocks=self.blocks)
        memory, position, rotation, told = _advance(body, memory, now, np.float64(time), width, there, blocks=self.blocks)
        states, covariance, oldest, status = (np.asarray(x) for x in told)
        return self._answer(stamp, now, memory, position, rotation, states, covariance, float(oldest), bool(status == 1))

    def _begin(self, stamp: int, now: Instant, there) -> tuple['OnlineCentroidal', CentroidalNow]:
        setup, body = self.setup, self.setup.body
        footholds, seen, sample = _first(body, now, there, blocks=self.blocks)
        if not bool(seen.supported):
            raise EstimationError(
                f'No contact at all: no foot feels more than {float(body.contact_force):.3g} N. The estimator waits for the robot to stand.'
            )
        smoother = start_lag_smoother(
            sample, lag=self.lag, mass=body.mass, gravity=body.model.gravity, noise=setup.process, prior=setup.prior,
            layout=setup.layout, loss=setup.loss,
        )  # fmt: skip
        spread = np.linalg.inv(np.asarray(smoother.problem.prior_information))
        states, covariance = np.tile(smoother.states[0], (2, 1)), np.tile(spread, (2, 1, 1))
        memory = _Memory(footholds, smoother, jnp.asarray(np.float64(-np.inf)))
        begun = replace(self, start=stamp)
        return begun._answer(stamp, now, memory, seen.base_position, seen.base_rotation, states, covariance, 0.0, True)

    def _answer(self, stamp, now, memory, position, rotation, states, covariance, oldest, converged):
        layout = self.setup.layout
        states, covariance = physical(layout, states, covariance)
        delayed = CentroidalState(self.start + round(oldest * 1e9), states[1], covariance[1], layout)
        standing = dict(zip(self.setup.body.contacts, np.asarray(memory.footholds.standing).tolist(), strict=True))
        position, rotation = np.asarray(position), np.asarray(rotation)
        told = CentroidalNow(stamp, states[0], covariance[0], layout, delayed, standing, position, rotation, converged)
        return replace(self, last=stamp, now=now, memory=memory), told

    def _wrenches(self, given: Any) -> np.ndarray:
        names = self.setup.signals.wrenches
        if isinstance(given, Mapping):
            for name in given:
                if name not in names:
                    raise EstimationError(f"The setup has no contact with the signal '{name}'.{did_you_mean(name, names)}")
            missing = [n for n in names if n not in given]
            if missing:
                raise EstimationError(f"The wrench '{missing[0]}' is missing; all contacts are needed, or none.")
            given = [given[name] for name in names]
        given = np.asarray(given, float)
        if given.shape != (len(names), 6) or not np.isfinite(given).all():
            raise EstimationError(f'The wrenches must be finite and of shape ({len(names)}, 6): {", ".join(names)}.')
        return given


def _ordered(given: Any, names: tuple[str, ...], what: str) -> np.ndarray:
    if isinstance(given, Mapping):
        missing = [name for name in names if name not in given]
        if missing:
            raise EstimationError(f"The {what} lack joint '{missing[0]}'.{did_you_mean(missing[0], given)}")
        given = [given[name] for name in names]
    return _vector(given, len(names), what)


def _vector(given: Any, size: int, what: str) -> np.ndarray:
    found = np.asarray(given, float)
    if found.shape != (size,) or not np.isfinite(found).all():
        raise EstimationError(f'The {what} must be {size} finite numbers. The sample was left out.')
    return found
