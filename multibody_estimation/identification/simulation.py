# SPDX-License-Identifier: Apache-2.0
"""A recording of a simulated robot: accurate integration, sensors with noise, quantisation, delay and rates of their own."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from multibody_estimation._jax import jnp
from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.identification import dynamics
from multibody_estimation.identification.binding import Key, bind
from multibody_estimation.identification.evaluation import SYMMETRIC
from multibody_estimation.identification.grid import input_means
from multibody_estimation.identification.joint_space import joint_form
from multibody_estimation.identification.observations import Encoder
from multibody_estimation.identification.robot import Robot
from multibody_estimation.identification.sensing import reading
from multibody_estimation.window import Signal, Window

__all__ = ['simulate']


def simulate(
    robot: Robot,
    command: Mapping[str, Callable[[np.ndarray], np.ndarray]] | Callable[[np.ndarray], np.ndarray] | None = None,
    *,
    seconds: float = 10.0,
    rate: float = 200.0,
    rates: Mapping[str, float] | None = None,
    start: Any = None,
    speed: Any = None,
    noise: bool = True,
    seed: int = 0,
    external: Callable[[np.ndarray], np.ndarray] | None = None,
    fine: int = 20,
) -> Window:
    """Simulate a robot whose parameters are taken at their starts (for the robots of this package: ``truth=True``).

    command: input (n,) as a function of time (n,), held between samples at ``rate`` Hz; one, or one per input signal. rates: other rates by
    signal. start, speed: joint positions and speeds at time zero, (nq,). external: further joint forces (nq, n) over time (n,).
    fine: integration steps per sample. The window carries the true parameters.
    """
    binding = bind(robot, tuple(p for p in robot.parameters if not p.fixed))
    form = joint_form(Key(binding), (True,) * len(robot.sensors), ((False,),) * len(robot.sensors), False, SYMMETRIC)
    values = binding.starts()
    model, inputs, numbers = binding.apply(values)
    names = dynamics.joint_names(robot.model)
    period, count = 1 / rate, int(round(seconds * rate)) + 1
    stamps, dt = period * np.arange(count), period / fine
    t = dt * np.arange((count - 1) * fine + 1)
    signals, force = [], np.zeros((len(names), len(t)))
    given = command if isinstance(command, Mapping) else {i.signal: command for i in robot.inputs if command is not None}
    for name in given:
        if name not in [i.signal for i in robot.inputs]:
            raise EstimationError(f"The robot has no input '{name}'.{did_you_mean(name, [i.signal for i in robot.inputs])}")
    for source, own in zip(robot.inputs, inputs):
        f = given.get(source.signal)
        u = np.zeros(count) if f is None else np.broadcast_to(np.asarray(f(stamps), dtype=float), (count,))
        first = np.concatenate([[0.0], np.cumsum(u[:-1] * np.diff(stamps))])
        second = np.concatenate([[0.0], np.cumsum(first[:-1] * period + 0.5 * u[:-1] * period**2)])
        mean = input_means(np, (stamps, u, first, second), t, dt, float(own['delay']))[2]
        force[names.index(source.joint)] += float(own['gain']) * mean + float(own['offset'])
        signals.append(Signal.from_seconds(source.signal, stamps, u, columns=(source.joint,), unit='N m' if source.kind == 'torque' else 'V'))  # fmt: skip
    if external is not None:
        force = force + np.asarray(external(t + dt / 2))
    x0 = np.zeros(len(names)) if start is None else np.asarray(start, dtype=float)
    v0 = np.zeros(len(names)) if speed is None else np.asarray(speed, dtype=float)
    z = binding.scaled(values)
    q, qd = form.rollout(jnp.asarray(x0[:, None]), jnp.asarray(v0[:, None]), jnp.asarray(force.T[:, :, None]), z, jnp.float64(dt))
    q, qd = np.asarray(q)[:, :, 0].T, np.asarray(qd)[:, :, 0].T
    qdd = np.gradient(qd, dt, axis=1, edge_order=2)
    rng = np.random.default_rng(seed)
    for k, sensor in enumerate(robot.sensors):
        own_rate = (rates or {}).get(sensor.signal, rate)
        at = np.arange(0.0, t[-1] + 1e-9, 1 / own_rate)
        moment = np.maximum(at - float(numbers[k]['delay']), 0.0)
        i = np.clip(np.round(moment / dt).astype(int), 0, len(t) - 1)
        # `reading` continues the motion by lag + sensor.delay - estimated delay; here lag is all there is.
        lag = moment - t[i] - sensor.delay + float(numbers[k]['delay'])
        y = np.asarray(reading(sensor, numbers[k], model, q[:, i], qd[:, i], qdd[:, i], lag)).T
        if noise:
            y = y + np.asarray(sensor.noise) * rng.normal(size=y.shape)
        if isinstance(sensor, Encoder) and sensor.quantisation:
            y = np.round(y / sensor.quantisation) * sensor.quantisation
        columns = sensor.columns or sensor.axes
        signals.append(Signal.from_seconds(sensor.signal, at, y, columns=columns if len(columns) == y.shape[1] else ()))
    truth = {p.name: float(v) for p, v in zip(binding.parameters, values)}
    return Window.gather(signals, source=f'simulated {robot.name}', truth=truth)
