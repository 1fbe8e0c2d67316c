# SPDX-License-Identifier: Apache-2.0
"""Impulse residuals of inverse dynamics: how much impulse is missing to go from one state to the next.

Equations (2.29)-(2.31), (3.6), (3.7) of Marklund, Servin, Larson, "Joint state and parameter estimation for multibody dynamics"
(doi 10.1007/s11044-025-10107-8), with the known force and the signs put right. For a trial velocity V after the step

    P(V) = M (V - v) - G^T lambda - D^T lambda_t - C^T lambda_c - h (f + f_g)
    0    = Sigma lambda + G V + (4/h) Ups g - Ups G v

No linear system is solved: with V given, Sigma is diagonal, dry friction is one clip per axis and a contact one maximum.

Interface for estimators. All arrays may have any trailing axes T (time last, each operation runs over contiguous time); parameters
are leaves of the model (``dataclasses.replace``), shared over time.

- `impulse_residual` ``(model, state, V, inputs, h)``: P(V) of one step; the multipliers are eliminated, or given as unknowns.
- `impulse_residuals`: the paper's pair dp_u, dp_q (its two-residual form), eliminated.
- `window_residual` ``(model, (q0, q1, q2), forces, inputs, h)``: unknown poses and joint forces, velocities are difference
  quotients. Impulse rows about q1 and constraint rows in metres and radians; no 1/compliance anywhere, compliance 0 allowed.
  Unknowns per node: 6 nb (tangent, moved with ``advance(pose, tangent, 1.0)``) and m = len(model.rows) joint forces of the middle node.
- `difference`, `advance`: boxminus and boxplus with trailing axes.

Shapes: pose (nb, 7, *T), velocity (nb, 6, *T), inputs (nu, *T) with nu = len(model.actuated), multipliers and forces (m, *T).
Evaluation 'symmetric' (second order, for identification; give the mean of the inputs held before and after the node) or 'spook'
(the stepper's own points; P is zero on its rollouts; give the input held after the node).
Jacobians by `jax.jvp` run 2 to 9 times faster over blocks of about 100 samples (`jax.lax.map`) than over thousands at once: the
tangents then stay in the cache.
"""

from typing import NamedTuple

from multibody_estimation._jax import jax, jnp
from multibody_estimation.errors import EstimationError
from multibody_estimation.geometry import components as c
from multibody_estimation.maximal.constraints import axis_rows, constraint_rows, lift
from multibody_estimation.maximal.contacts import contact_rows, limit_rows
from multibody_estimation.maximal.forces import explicit_force, gyroscopic_impulse, gyroscopic_torque, times_mass
from multibody_estimation.maximal.laws import contact_creep, friction_limit, mean_clip, regularisation, unilateral_offset
from multibody_estimation.maximal.model import Multibody, State
from multibody_estimation.maximal.rows import impulse, pick, speed

__all__ = ['Residual', 'advance', 'difference', 'impulse_residual', 'impulse_residuals', 'window_residual']

Array = jax.Array


class Residual(NamedTuple):
    """What is left over."""

    impulse: Array
    """P(V), N s (linear, world) and N m s (angular, body); shape (nb, 6, *T)."""
    constraint: Array
    """Sigma lambda + G V + a, m/s or rad/s (of `window_residual`: in m or rad); shape (m, *T); zero where eliminated."""
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


def _contacts(model: Multibody, pose: Array, v: Array, V: Array, step: Array | float) -> Array:
    """Impulse of contacts and limits on every body; (nb, 6, *T)."""
    n, t = len(model.bodies), pose.ndim - 2
    total = jnp.zeros_like(v)
    if model.contacts:
        gap, normal, tangent = contact_rows(model, pose)
        sigma, ups = (lift(x, t) for x in regularisation(model.contact_compliance, model.contact_damping, step))
        load = jnp.maximum(-(speed(normal, V) + unilateral_offset(gap, speed(normal, v), ups, step)) / sigma, 0.0)
        limit = jnp.concatenate([lift(model.contact_friction, t) * load] * 2)
        creep = lift(jnp.tile(contact_creep(model, step), 2), t)
        total = impulse(normal, load, n) + impulse(tangent, jnp.clip(-speed(tangent, V) / creep, -limit, limit), n)
    if model.limited:
        gap, rows = limit_rows(model, pose)
        sigma, ups = regularisation(model.limit_compliance[0], model.limit_compliance[1], step)
        push = jnp.maximum(-(speed(rows, V) + unilateral_offset(gap, speed(rows, v), ups, step)) / sigma, 0.0)
        total = total + impulse(rows, push, n)
    return total


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
    Given as unknowns (impulses), no 1/compliance of a joint appears anywhere and rigid joints (compliance 0) are allowed.
    ``evaluation``: ``'symmetric'`` takes gyroscopic torque and friction as means of both velocities (second order; pass the mean
    of the inputs of both intervals); ``'spook'`` takes the stepper's own points, for which P is zero on its rollouts.
    ``wrench`` (nb, 6, *T): external force in world, torque about the centre of mass in body components.
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
    if evaluation == 'symmetric':
        gyro = step / 2 * (gyroscopic_torque(model, v) + gyroscopic_torque(model, V))
    else:
        gyro = gyroscopic_impulse(model, v, step)
    known = explicit_force(model, state.pose, axes, inputs, wrench)
    P = times_mass(model, V - v) - step * known - impulse(G, lam, n)
    P = P - jnp.concatenate([jnp.zeros_like(gyro), gyro], axis=1)
    if model.axes:
        before, after = speed(axes, v), speed(axes, V)
        drag = lift(model.viscous + model.back_emf, t)
        friction = -step * drag * ((before + after) / 2 if evaluation == 'symmetric' else after)
        friction = friction - lift(model.armature, t) * (after - before)
        if model.dry:
            limit, creep = friction_limit(model, lam, step), lift(pick(model.creep, model.dry), t)
            u0, u1 = pick(before, model.dry), pick(after, model.dry)
            share = mean_clip(u0, u1, creep) if evaluation == 'symmetric' else jnp.clip(u1 / creep, -1, 1)
            P = P + impulse(axes.take(model.dry), limit * share, n)
        P = P - impulse(axes, friction, n)
    if model.contacts or model.limited:
        P = P - _contacts(model, state.pose, v, V, step)
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


def window_residual(
    model: Multibody,
    poses: tuple[Array, Array, Array],
    forces: Array,
    inputs: Array,
    step: Array | float,
    *,
    evaluation: str = 'symmetric',
    wrench: Array | None = None,
) -> Residual:
    """Residual about the middle of three neighbouring poses, joint forces [N, N m] of the middle being unknowns; (m, *T).

    Velocities are difference quotients, so the residual is second order with 'symmetric'. The constraint rows are divided by
    (4/h) Ups: ``eps force + g + (h/4)(G V - G v) + tau G V``, in m and rad.
    """
    q0, q1, q2 = poses
    v, V = difference(q1, q0) / step, difference(q2, q1) / step
    r = impulse_residual(model, State(q1, v), V, inputs, step, multipliers=step * forces, evaluation=evaluation, wrench=wrench)
    _, ups = regularisation(model.compliance, model.damping, step)
    return Residual(r.impulse, r.constraint * lift(step / (4 * ups), q1.ndim - 2), r.multipliers)
