# SPDX-License-Identifier: Apache-2.0
"""Impulse residuals of inverse dynamics: how much impulse is missing to go from one state to the next.

Equations (2.29)-(2.31), (3.6), (3.7) of Marklund, Servin, Larson, "Joint state and parameter estimation for multibody dynamics"
(doi 10.1007/s11044-025-10107-8), with the known force and the signs put right. For a trial velocity V after the step

    P(V) = M (V - v) - G^T lambda - D^T lambda_t - h (f + f_g)
    0    = Sigma lambda + G V + (4/h) Ups g - Ups G v

No linear system is solved: with V given, Sigma is diagonal and dry friction is one clip per axis. All arrays may have trailing
axes T (time last): pose (nb, 7, *T), velocities (nb, 6, *T), inputs (nu, *T), multipliers (m, *T).
"""

from typing import NamedTuple

from multibody_estimation._jax import jax, jnp
from multibody_estimation.errors import EstimationError
from multibody_estimation.geometry import components as c
from multibody_estimation.maximal.constraints import axis_rows, constraint_rows, lift
from multibody_estimation.maximal.forces import explicit_force, gyroscopic_torque, times_mass
from multibody_estimation.maximal.model import Multibody, State
from multibody_estimation.maximal.rows import impulse, pick, speed

__all__ = ['Residual', 'advance', 'difference', 'friction_limit', 'impulse_residual', 'impulse_residuals', 'regularisation']

Array = jax.Array


class Residual(NamedTuple):
    """What is left over."""

    impulse: Array
    """P(V), N s (linear, world) and N m s (angular, body); shape (nb, 6, *T)."""
    constraint: Array
    """Sigma lambda + G V + a, m/s or rad/s; shape (m, *T); zero where the multipliers were eliminated."""
    multipliers: Array
    """Constraint impulses, N s or N m s; shape (m, *T)."""


def advance(pose: Array, velocity: Array, step: Array | float) -> Array:
    """q (+) h v: poses after ``step`` seconds at constant velocity; shapes (nb, 7, *T), (nb, 6, *T)."""
    turn = c.exp([step * velocity[:, 3 + i] for i in range(3)])
    e = c.multiply([pose[:, 3 + i] for i in range(4)], turn)
    size = jnp.sqrt(c.dot(e, e))  # keeps unit length over long rollouts
    return jnp.concatenate([pose[:, :3] + step * velocity[:, :3], jnp.stack([x / size for x in e], axis=1)], axis=1)


def difference(end: Array, start: Array) -> Array:
    """end (-) start: tangent with the angular part in the body frame of ``start``; (nb, 7, *T) -> (nb, 6, *T)."""
    e0, e1 = ([q[:, 3 + i] for i in range(4)] for q in (start, end))
    turn = c.log(c.multiply(c.conjugate(e0), e1))
    return jnp.concatenate([end[:, :3] - start[:, :3], jnp.stack(turn, axis=1)], axis=1)


def regularisation(compliance: Array, damping: Array, step: Array | float) -> tuple[Array, Array]:
    """Sigma = (4/h^2) eps Ups and Ups = 1/(1 + 4 tau/h) of each row (2.9)."""
    ups = 1 / (1 + 4 * damping / step)
    return 4 / step**2 * compliance * ups, ups


def friction_limit(model: Multibody, multipliers: Array, step: Array | float) -> Array:
    """Largest dry friction impulse of each axis, h tau_c + mu r |lambda_n| (2.23); multipliers (m, *T) -> (na, *T).

    Joint multipliers have no sign, so the load is the norm of the joint's displacement rows, smoothed at zero by 1e-9 N s.
    """
    t = multipliers.ndim - 1
    limit = step * lift(model.coulomb, t) + jnp.zeros((len(model.axes), *multipliers.shape[1:]))
    if not model.loaded:
        return limit
    parts = [limit[i] for i in range(len(model.axes))]
    for i in model.loaded:
        joint = model.axes[i][0]
        mine = [k for k, (j, row) in enumerate(model.rows) if j == joint and row not in (3, 4, 5)]
        load = jnp.sqrt(sum(multipliers[k] ** 2 for k in mine) + 1e-18)
        parts[i] = parts[i] + model.load_radius[i] * load
    return jnp.stack(parts)


def _mean_clip(before: Array, after: Array, creep: Array) -> Array:
    """Mean of clip(u/creep, -1, 1) while u runs linearly from before to after."""
    change = after - before
    small = jnp.abs(change) < 1e-6 * creep

    def integral(u: Array) -> Array:
        return jnp.where(jnp.abs(u) < creep, u * u / (2 * creep), jnp.abs(u) - creep / 2)

    quotient = (integral(after) - integral(before)) / jnp.where(small, 1.0, change)
    return jnp.where(small, jnp.clip((before + after) / (2 * creep), -1, 1), quotient)


def impulse_residual(
    model: Multibody,
    state: State,
    next_velocity: Array,
    inputs: Array,
    step: Array | float,
    *,
    multipliers: Array | None = None,
    evaluation: str = 'symmetric',
    wrench: Array | None = None,
) -> Residual:
    """P(V) for the state before the step and a trial velocity after it.

    ``multipliers`` None: eliminated, lambda = -(G V + a)/Sigma, which needs compliance > 0 and loses digits as it goes to 0.
    Given as unknowns, no 1/compliance appears anywhere and rigid joints (compliance 0) are allowed.
    ``evaluation``: ``'symmetric'`` takes gyroscopic torque and friction as means of both velocities (second order; pass the mean
    of the inputs of both intervals); ``'spook'`` takes the stepper's own points, for which P is zero on its rollouts.
    """
    if evaluation not in ('symmetric', 'spook'):
        raise EstimationError(f"evaluation is '{evaluation}'; it must be 'symmetric' or 'spook'.")
    n, t = len(model.bodies), state.pose.ndim - 2
    v, V = state.velocity, next_velocity
    g, G = constraint_rows(model, state.pose)
    sigma, ups = (lift(x, t) for x in regularisation(model.compliance, model.damping, step))
    row = speed(G, V) + ups * (4 / step * g - speed(G, v))
    if multipliers is None:
        lam = -row / sigma
        constraint = jnp.zeros_like(row)
    else:
        lam = multipliers
        constraint = sigma * lam + row

    axes = axis_rows(model, state.pose)
    force = explicit_force(model, state.pose, axes, inputs, wrench)
    gyro = gyroscopic_torque(model, v)
    if evaluation == 'symmetric':
        gyro = (gyro + gyroscopic_torque(model, V)) / 2
    known = step * force + step * jnp.concatenate([jnp.zeros_like(gyro), gyro], axis=1)
    P = times_mass(model, V - v) - impulse(G, lam, n) - known
    if model.axes:
        before, after = speed(axes, v), speed(axes, V)
        drag = lift(model.viscous + model.back_emf, t)
        friction = -step * drag * ((before + after) / 2 if evaluation == 'symmetric' else after)
        if model.dry:
            limit = pick(friction_limit(model, lam, step), model.dry)
            creep = lift(pick(model.creep, model.dry), t)
            u0, u1 = pick(before, model.dry), pick(after, model.dry)
            share = _mean_clip(u0, u1, creep) if evaluation == 'symmetric' else jnp.clip(u1 / creep, -1, 1)
            P = P + impulse(axes.take(model.dry), limit * share, n)
        P = P - impulse(axes, friction, n)
    return Residual(P, constraint, lam)


def impulse_residuals(
    model: Multibody, state: State, after: State, inputs: Array, step: Array | float, *, evaluation: str = 'spook'
) -> tuple[Array, Array]:
    """Both residuals of the paper, dp_u = P(v_{k+1}) (3.6) and dp_q = P((q_{k+1} (-) q_k)/h) (3.7); each (nb, 6, *T).

    The multipliers are evaluated anew at each trial velocity; only then (3.12) and (3.13) hold.
    """
    mean = difference(after.pose, state.pose) / step
    u = impulse_residual(model, state, after.velocity, inputs, step, evaluation=evaluation)
    q = impulse_residual(model, state, mean, inputs, step, evaluation=evaluation)
    return u.impulse, q.impulse
