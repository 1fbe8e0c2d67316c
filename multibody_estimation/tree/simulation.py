# SPDX-License-Identifier: Apache-2.0
"""`simulate`: a robot's motion under commands, from a start; the front of the integrators."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from multibody_estimation._jax import jax, jnp, static, value
from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.tree.bodies import hold_bodies
from multibody_estimation.tree.integrators import rk4_step, symplectic_step
from multibody_estimation.tree.joint_torques import _dofs, motor_torques
from multibody_estimation.tree.model import Model, Structure, check

__all__ = ['Trajectory', 'simulate']

CHUNK = 128
"""Steps in one compiled loop: simulations of any length share it."""
INTEGRATORS = {'rk4': rk4_step, 'symplectic': symplectic_step}


@value
class Trajectory:
    """A simulated motion of n steps."""

    time: Any
    """[s]; (n + 1,)."""
    position: Any
    """(n + 1, nq)."""
    velocity: Any
    """(n + 1, nv)."""
    torque: Any
    """Torques of the motors during each step; (n, nv) [N m, N]."""
    structure: Structure = static()

    def save_csv(self, path: str | Path) -> None:
        """Write time, positions and velocities, one row per instant."""
        n_q, n_v = self.position.shape[1], self.velocity.shape[1]
        names = ['time', *(f'position{i}' for i in range(n_q)), *(f'velocity{i}' for i in range(n_v))]
        table = np.column_stack([self.time, self.position, self.velocity])
        np.savetxt(path, table, delimiter=',', header=','.join(names), comments='', fmt='%.17g')

    def __repr__(self) -> str:
        n = len(self.time) - 1
        speed = float(np.abs(np.asarray(self.velocity)).max()) if n else 0.0
        return f'Trajectory({self.structure.name!r}: {float(self.time[-1]):g} s in {n} steps, greatest speed {speed:.3g})'


def simulate(
    model: Model,
    position: Any,
    velocity: Any,
    duration: float,
    step: float = 1e-3,
    command: Any = None,
    wrenches: Any = None,
    integrator: str = 'rk4',
) -> Trajectory:
    """Simulate from a start for ``duration`` [s] in steps of ``step`` [s].

    ``command``: what the motors are told, one number per joint's degree of freedom: None for motors that are not there, an array (n, nv less base) with a
    row per step, or a function (time, position, velocity) -> row, called at the start of each step; with ``motor_gain`` 1 it is a torque.
    It is held over the step and reaches the joint after ``motor_delay``, rounded to whole steps. ``wrenches``: as in
    `inverse_dynamics`, constant, or a function (time, position, velocity) of the same. ``integrator``: 'rk4' or 'symplectic'.
    """
    check(model, position, velocity)
    if integrator not in INTEGRATORS:
        raise EstimationError(f"There is no integrator '{integrator}'.{did_you_mean(integrator, INTEGRATORS)}")
    if not (np.isfinite(duration) and np.isfinite(step) and step > 0 and duration >= 0):
        raise EstimationError(f'simulate: duration is {duration} s and step is {step} s; both must be finite, the step positive.')
    n, width = int(round(duration / step)), model.nv - 6 * model.floating
    delays = np.rint(np.asarray(model.motor_delay, dtype=float)[_dofs(model)] / step).astype(int)
    if command is not None and not callable(command):
        command = np.asarray(command, dtype=float)
        if command.shape != (n, width):
            raise EstimationError(
                f'simulate: the commands have shape {command.shape}; {n} steps of {step:g} s need ({n}, {width}), one column per '
                f'joint: {", ".join(model.joint_names[:8])}.'
            )
        if not np.isfinite(command).all():
            row = int(np.flatnonzero(~np.isfinite(command).all(1))[0])
            raise EstimationError(f'simulate: the commands of step {row} are not all finite.')
    rows = command if isinstance(command, np.ndarray) else np.zeros((n, 0))
    policy = command if callable(command) else None
    varying = wrenches if callable(wrenches) else None
    chunks = -(-n // CHUNK)
    rows = np.concatenate([rows, np.zeros((chunks * CHUNK - n, rows.shape[1]))])
    run = _program(model.structure, integrator, policy, varying, tuple(int(d) for d in delays), command is not None)
    state = jnp.asarray(position, dtype=float), jnp.asarray(velocity, dtype=float), jnp.zeros((delays.max(initial=0) + 1, width))
    Q, V, T = [np.asarray(state[0])[None]], [np.asarray(state[1])[None]], [np.zeros((0, model.nv))]
    for k in range(chunks):
        state, out = run(model, state, k * CHUNK, float(step), rows[k * CHUNK : (k + 1) * CHUNK], None if varying else wrenches)
        for kept, new in zip((Q, V, T), out):
            kept.append(np.asarray(new))
    q, v, torque = np.concatenate(Q)[: n + 1], np.concatenate(V)[: n + 1], np.concatenate(T)[:n]
    if not np.isfinite(q).all():
        at = int(np.flatnonzero(~np.isfinite(q).all(1))[0])
        raise EstimationError(
            f'{model.name}: the simulation broke down at {at * step:g} s. Take a smaller step than {step:g} s, or softer commands.'
        )
    return Trajectory(np.arange(n + 1) * step, q, v, torque, model.structure)


@lru_cache(maxsize=32)
def _program(
    structure: Structure, integrator: str, policy: Callable | None, varying: Callable | None, delays: tuple, powered: bool
) -> Callable:
    """The compiled loop over CHUNK steps; kept, so that another simulation with the same functions does not compile again."""
    width, late = len(delays), np.array(delays, int)

    @jax.jit
    def run(model: Model, state: tuple, start: Any, h: Any, rows: Any, wrenches: Any) -> tuple:
        hold_bodies(model)
        # Back-EMF changes within a step, with the velocity; the command is held.
        drag = -motor_torques(model, jnp.zeros(width), jnp.ones(model.nv)) if powered else jnp.zeros(model.nv)

        def step(state: tuple, x: tuple) -> tuple:
            (q, v, memory), (k, row) = state, x
            t = k * h
            if policy is not None:
                row = jnp.asarray(policy(t, q, v), dtype=float)
                if row.shape != (width,):
                    raise EstimationError(f'simulate: the command function gives shape {row.shape}; ({width},) is needed.')
            elif row.shape != (width,):
                row = jnp.zeros(width)
            memory = jnp.concatenate([row[None], memory[:-1]])
            told = memory[late, np.arange(width)]
            now: Any = varying(t, q, v) if varying is not None else wrenches
            q1, v1 = INTEGRATORS[integrator](model, q, v, h, motor_torques(model, told, jnp.zeros(model.nv)), now, drag)
            return (q1, v1, memory), (q1, v1, motor_torques(model, told, v) if powered else jnp.zeros(model.nv))

        return jax.lax.scan(step, state, (start + jnp.arange(CHUNK), rows))

    return run
