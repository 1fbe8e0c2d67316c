# SPDX-License-Identifier: Apache-2.0
"""A robot that exists only here: the true dynamics of a robot of `robots`, seen through encoders that count, tremble and fail."""

import math
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from multibody_estimation import robots
from multibody_estimation._jax import jax, jnp
from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.hardware.device import Actuators, Channel, Command, Device, DeviceLost, Sample
from multibody_estimation.identification import dynamics
from multibody_estimation.identification.observations import Encoder
from multibody_estimation.identification.robot import Robot
from multibody_estimation.window import NANOSECONDS

__all__ = ['Simulated', 'make_step']

FINEST = 1.5e-3
"""Longest integration step in seconds (Runge-Kutta of order 4)."""

NAMES = ('furuta', 'qube', 'cart_pole', 'double_pendulum')


def make_step(robot: Robot, step: float) -> Any:
    """Return a compiled function (state (2 nq,), inputs (ni,)) to the state one step (seconds) later, with the inputs held.

    Model and motors are those of `identification`, so that what is simulated is what is estimated. The substeps are equal.
    """
    model = robot.model
    names = dynamics.joint_names(model)
    nq, count = len(names), max(1, math.ceil(step / FINEST))
    h = step / count

    def rates(x: Any, force: Any, loss: Any) -> Any:
        v = x[nq:]
        return jnp.concatenate([v, dynamics.accelerations(model, x[:nq, None], v[:, None], (force - loss * v)[:, None])[:, 0]])

    def advance(x: Any, inputs: Any) -> Any:
        force, loss = jnp.zeros(nq), np.zeros(nq)
        for k, source in enumerate(robot.inputs):
            joint = names.index(source.joint)
            force = force.at[joint].add(source.gain * inputs[k] + source.offset)
            loss[joint] += source.back_emf

        def one(x: Any, _: Any) -> Any:
            a = rates(x, force, loss)
            b = rates(x + h / 2 * a, force, loss)
            c = rates(x + h / 2 * b, force, loss)
            d = rates(x + h * c, force, loss)
            return x + h / 6 * (a + 2 * b + 2 * c + d), None

        return jax.lax.scan(one, x, None, length=count)[0]

    return jax.jit(advance).lower(np.zeros(2 * nq), np.zeros(len(robot.inputs))).compile()


@cache
def _robot(name: str) -> Robot:
    if name not in NAMES:
        raise EstimationError(f"There is no simulated robot '{name}'.{did_you_mean(name, NAMES)}")
    return getattr(robots, name)(truth=True)


@cache
def _step(name: str, nanoseconds: int) -> Any:
    return make_step(_robot(name), nanoseconds / NANOSECONDS)


@dataclass
class Simulated(Device):
    """Encoders on ``joint_states``; takes commands as the robot's motor does (torque or voltage)."""

    robot: str = 'furuta'
    """``furuta``, ``qube``, ``cart_pole`` or ``double_pendulum``."""
    rate: float = 200.0
    """Samples per second."""
    quantisation: float = 0.0
    """Step of the encoders in rad (or m); 0: none."""
    noise: float = 2e-3
    """Standard deviation of the readings in rad (or m), before quantisation."""
    command_delay: float = 0.0
    """Seconds from a command's stamp to its effect, at the next step."""
    sensor_delay: float = 0.0
    """Seconds by which a stamp is later than the moment it describes."""
    dropped: float = 0.0
    """Share of samples that get lost, 0 to 1."""
    velocities: bool = False
    """Whether JointState carries the true speeds too."""
    realtime: bool = True
    """False: as fast as it is read, one sample per read."""
    seed: int = 0
    start: tuple[float, ...] = ()
    """Joint positions at the beginning in rad or m; default: hanging, the last joint 0.4 off."""
    stall_at: float = 0.0
    """Seconds after opening at which it falls silent until it is opened again; 0: never. To rehearse faults."""
    epoch: int = 0
    """First stamp in ns; 0: now."""

    _state: Any = field(default=None, init=False, repr=False)
    _lost: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 20_000:
            raise EstimationError(f'A simulated robot with {self.rate} samples per second cannot be made; the rate is in Hz.')
        if not 0 <= self.dropped < 1 or min(self.quantisation, self.noise, self.command_delay) < 0:
            raise EstimationError('Noise, quantisation and delay are not negative, and less than all samples are dropped.')
        self._robot = _robot(self.robot)
        sensor = next(s for s in self._robot.sensors if isinstance(s, Encoder))
        self._joints, self._sensor = tuple(dynamics.joint_names(self._robot.model)), sensor
        self._offset = np.array(sensor.offset or (0.0,) * len(sensor.joints), dtype=float)
        self._index = [self._joints.index(j) for j in sensor.joints]
        if self.start and len(self.start) != len(self._joints):
            raise EstimationError(f'start has {len(self.start)} positions for the joints {", ".join(self._joints)}.')
        self._step_ns = round(NANOSECONDS / self.rate)
        self._advance: Any = None
        self._rng = np.random.default_rng(self.seed)

    @property
    def channels(self) -> tuple[Channel, ...]:
        total = math.hypot(self.noise, self.quantisation / math.sqrt(12)) or 1e-9
        noise = {'': (total,) * len(self._sensor.joints)}
        return (
            Channel('joint_states', 'sensor_msgs/msg/JointState', 'encoders', self._sensor.joints, rate=self.rate, noise=noise),
        )

    @property
    def actuators(self) -> Actuators:
        inputs = self._robot.inputs
        kind = inputs[0].kind if inputs else 'torque'
        limits = []
        for source in inputs:
            effort = getattr(self._robot.model, 'effort_limit', None)
            most = float(effort[self._joints.index(source.joint)]) if effort is not None else math.inf
            limits.append(most / source.gain if most > 0 else math.inf)
        return Actuators(tuple(i.joint for i in inputs), kind, tuple(limits))

    @property
    def truth(self) -> Mapping[str, float]:
        return {p.name: float(p.start) for p in self._robot.parameters if p.start is not None}

    def stamp(self, count: int) -> int:
        """Stamp of sample number ``count`` in ns."""
        return self._first + count * self._step_ns

    def open(self) -> None:
        """Begin at rest at the start position; the first time the dynamics are compiled."""
        if self._advance is None:
            self._advance = _step(self.robot, self._step_ns)
        q = np.zeros(len(self._joints))
        q[-1] = 0.4
        if self.start:
            q[:] = self.start
        self._state = np.concatenate([q, np.zeros(len(q))])
        self._inputs = np.zeros(len(self._robot.inputs))
        self._queue: deque[Command] = deque()
        self._first = self.epoch or time.time_ns()
        self._began = time.monotonic()
        self._last = -1

    def read(self, timeout: float) -> list[Sample]:
        """Advance to the next sample (in real time: to all that are due by now) and measure."""
        if self._state is None:
            raise DeviceLost('The simulated robot is not open.')
        if self.stall_at and self._last * self._step_ns >= self.stall_at * NANOSECONDS:
            time.sleep(timeout)
            return []
        due = self._due(timeout) if self.realtime else self._last + 1
        out = []
        while self._last < due:
            if self._last >= 0:
                self._move()
            self._last += 1
            if self.dropped and self._rng.random() < self.dropped:
                self._lost += 1
            else:
                out.append(self._measure())
        return out

    def _due(self, timeout: float) -> int:
        """Wait for the next sample, at most ``timeout`` seconds; return the number of the newest one that is due."""
        period = self._step_ns / NANOSECONDS
        wait = self._began + (self._last + 1) * period - time.monotonic()
        if wait > 0:
            time.sleep(min(wait, timeout))
        due = math.floor((time.monotonic() - self._began) / period + 1e-9)
        behind = due - self._last - 1
        if behind > self.rate:
            # More than a second behind (a laptop that slept): go on from here instead of racing after the clock.
            self._began += behind * period
            self._first += behind * self._step_ns
            due = self._last + 1
        return due

    def _move(self) -> None:
        """From the last sample to the next one, with the commands that are in force at the last one."""
        now = self.stamp(self._last)
        delay = round(self.command_delay * NANOSECONDS)
        while self._queue and self._queue[0].stamp + delay <= now:
            self._inputs = np.array(self._queue.popleft().values, dtype=float)
        self._state = self._advance(self._state, self._inputs)

    def _measure(self) -> Sample:
        x = np.asarray(self._state)
        q = x[self._index] + self._offset + self.noise * self._rng.normal(size=len(self._index))
        if self.quantisation:
            q = self.quantisation * np.round(q / self.quantisation)
        parts = {'': q.tolist()}
        if self.velocities:
            parts['/velocities'] = x[len(self._joints) :][self._index].tolist()
        return Sample('joint_states', self.stamp(self._last) + round(self.sensor_delay * NANOSECONDS), parts)

    def write(self, command: Command) -> int:
        """Queue a command; it acts from the first sample that is ``command_delay`` after its stamp or later."""
        if self._state is None:
            raise DeviceLost('The simulated robot is not open.')
        if len(command.values) != len(self._inputs):
            raise EstimationError(f'{len(command.values)} values for {len(self._inputs)} motors.')
        self._queue.append(command)
        # The delay itself is not told: finding it is the estimator's work.
        return max(
            self._first + -(-(command.stamp - self._first) // self._step_ns) * self._step_ns, self.stamp(max(self._last, 0))
        )

    def stop(self) -> int | None:
        """Zero at once, whatever is queued."""
        if self._state is None:
            return None
        self._queue.clear()
        self._inputs = np.zeros(len(self._robot.inputs))
        return self.stamp(max(self._last, 0))

    @property
    def positions(self) -> np.ndarray:
        """True joint positions now, (nq,) in rad or m."""
        return np.asarray(self._state)[: len(self._joints)]

    def close(self) -> None:
        """Forget the state."""
        self._state = None

    @property
    def counts(self) -> Mapping[str, int]:
        return {'samples dropped on purpose': self._lost}
