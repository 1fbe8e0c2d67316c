# SPDX-License-Identifier: Apache-2.0
"""Rollouts: many steps in one compiled loop, with everything a user may want to look at."""

from functools import partial
from typing import Any

import numpy as np

from multibody_estimation._jax import jax, jnp, value
from multibody_estimation.errors import EstimationError
from multibody_estimation.maximal.constraints import axis_coordinates, axis_rows, constraint_values
from multibody_estimation.maximal.forces import Energies, energy
from multibody_estimation.maximal.lcp import SOLVED
from multibody_estimation.maximal.model import Multibody, State
from multibody_estimation.maximal.rows import speed
from multibody_estimation.maximal.spook import Outcome, step

__all__ = ['Rollout', 'simulate']

Array = jax.Array


@value
class Rollout:
    """N steps; states have N + 1 instants, forces N intervals, on the last axis (batch axes *B before it)."""

    time: Array
    """s; shape (N + 1,)."""
    state: State
    """pose (nb, 7, *B, N + 1) and velocity (nb, 6, *B, N + 1)."""
    coordinates: Array
    """Of the joints' free axes, rad or m (order of ``model.axis_names``); shape (na, *B, N + 1)."""
    speeds: Array
    """rad/s or m/s; shape (na, *B, N + 1)."""
    violation: Array
    """g of each elementary constraint, m or rad; shape (m, *B, N + 1)."""
    energy: Energies
    """J; each part (*B, N + 1)."""
    joint_forces: Array
    """Joint reactions, N or N m, mean over each step (order of ``model.rows``); shape (m, *B, N)."""
    axis_forces: Array
    """Friction and back-EMF on each axis, N m or N; shape (na, *B, N)."""
    contact_normal: Array
    """N; shape (nc, *B, N)."""
    contact_tangential: Array
    """N; shape (nc, 2, *B, N)."""
    limit_forces: Array
    """Lower limits, then upper ones, N m or N; shape (2 nl, *B, N)."""
    unsolved: Array
    """Number of steps whose complementarity problem was not solved; shape (*B). Zero unless something is very wrong."""


@partial(jax.jit, static_argnames='steps')
def _run(model: Multibody, state: State, inputs: Array, steps: int, time_step: Array, wrench: Array | None) -> Rollout:
    def advance(state: State, u: Array) -> tuple[State, tuple[State, Outcome]]:
        out = step(model, state, u, time_step, wrench=wrench)
        return out.state, (out.state, out)

    _, (after, out) = jax.lax.scan(advance, state, jnp.moveaxis(inputs, -1, 0), length=steps)

    def last(x: Array) -> Array:
        return jnp.moveaxis(x, 0, -1)

    states = jax.tree.map(lambda x0, x: last(jnp.concatenate([x0[None], x])), state, after)
    return Rollout(
        time=time_step * jnp.arange(steps + 1),
        state=states,
        coordinates=axis_coordinates(model, states.pose),
        speeds=speed(axis_rows(model, states.pose), states.velocity),
        violation=constraint_values(model, states.pose),
        energy=energy(model, states),
        joint_forces=last(out.joint) / time_step,
        axis_forces=last(out.axis) / time_step,
        contact_normal=last(out.normal) / time_step,
        contact_tangential=last(out.tangential) / time_step,
        limit_forces=last(out.limit) / time_step,
        unsolved=jnp.sum(out.status != SOLVED, axis=0),
    )


def _known(*arrays: Any) -> bool:
    return not any(isinstance(a, jax.core.Tracer) for a in arrays)


def simulate(
    model: Multibody,
    state: State,
    inputs: Any = None,
    steps: int = 1000,
    *,
    time_step: float = 1e-3,
    wrench: Any = None,
) -> Rollout:
    """Run the mechanism for ``steps`` steps of ``time_step`` seconds.

    ``inputs``: (nu, steps) held over each step, (nu,) held all along, or None for zeros, in the units of the motors' gains.
    ``wrench`` (nb, 6, *B), held all along: force in world [N], torque about the centre of mass in body components [N m].
    The state may be a batch, pose (nb, 7, *B) and velocity (nb, 6, *B), with inputs (nu, *B, steps); `jax.vmap` over models
    and states gives batches over parameters. Jits, and differentiates both ways.
    """
    nu, steps = len(model.actuated), int(steps)
    if steps < 1:
        raise EstimationError(f'steps is {steps}; at least one is needed.')
    if _known(time_step) and not (np.isfinite(time_step) and time_step > 0):
        raise EstimationError(f'time_step is {time_step} s; it must be positive.')
    if _known(state.pose, state.velocity):
        state = model.state(state.pose, state.velocity)
    batch = state.pose.shape[2:]
    u = jnp.zeros(nu) if inputs is None else jnp.asarray(inputs, dtype=float)
    if u.shape == (nu,):
        u = jnp.broadcast_to(u.reshape((nu,) + (1,) * (len(batch) + 1)), (nu, *batch, steps))
    if u.shape not in ((nu, *batch, steps), (nu, *(1 for _ in batch), steps)):
        raise EstimationError(
            f'The inputs have shape {u.shape}; this mechanism has {nu} motors: give ({nu},) or {(nu, *batch, steps)}.'
        )
    if _known(u) and not np.isfinite(np.asarray(u)).all():
        bad = np.argwhere(~np.isfinite(np.asarray(u)))[0]
        raise EstimationError(f'Input {bad[0]} is not finite at step {bad[-1]}.')
    u = jnp.broadcast_to(u, (nu, *batch, steps))
    return _run(
        model, state, u, steps, jnp.asarray(time_step, dtype=float), None if wrench is None else jnp.asarray(wrench, dtype=float)
    )
