# SPDX-License-Identifier: Apache-2.0
"""One step of simulated time: Runge-Kutta 4, and a variational (symplectic) midpoint rule; dry friction really sticks in both.

Motor torques and external wrenches are held over a step. With the friction law ``stick`` a joint at rest stays exactly at rest until
the drive exceeds coulomb + stribeck; a joint that comes to rest within a step is caught there.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from multibody_estimation._jax import jax, jnp
from multibody_estimation.geometry import quaternion
from multibody_estimation.tree.dynamics import bias_forces, external_forces, mass_matrix
from multibody_estimation.tree.energy import kinetic_energy, potential_energy
from multibody_estimation.tree.forward_dynamics import forward_dynamics
from multibody_estimation.tree.joint_torques import dry_limits, friction_torques, spring_torques, viscous_torques
from multibody_estimation.tree.model import Model
from multibody_estimation.tree.positions import advance, difference, normalised, places
from multibody_estimation.tree.sticking import stick_or_slide

__all__ = ['position_rate', 'rk4_step', 'symplectic_step']

ITERATIONS = 30
"""Most rounds of the implicit midpoint equation; each gains a factor of about step * frequency, four or five are usual."""
CONVERGED = 1e-13
"""Relative change of the velocity at which the rounds end."""


def position_rate(model: Model, position: Any, velocity: Any) -> Any:
    """Rate of the position vector for a velocity; (nq,)."""
    (at, of), turning = places(model.structure)
    if not turning:
        return velocity
    out = jnp.zeros(model.nq).at[at].set(velocity[of])
    for kind, iq, iv in turning:
        first, w = (iq, velocity[iv : iv + 3]) if kind == 'spherical' else (iq + 3, velocity[iv + 3 : iv + 6])
        e = position[first : first + 4]
        out = out.at[first : first + 4].set(quaternion.multiply(e, jnp.concatenate([jnp.zeros(1), w])) / 2)
        if kind == 'floating':
            out = out.at[iq : iq + 3].set(quaternion.rotate(quaternion.normalise(e), velocity[iv : iv + 3]))
    return out


def _runge_kutta(model: Model, rate: Callable, q: Any, v: Any, h: Any) -> tuple[Any, Any]:
    def stage(state: tuple, weight: Any) -> tuple[tuple, None]:
        (dq, dv, sum_q, sum_v), (ahead, share) = state, weight
        here, speed = q + ahead * h * dq, v + ahead * h * dv
        dq, dv = position_rate(model, here, speed), rate(here, speed)
        return (dq, dv, sum_q + share * dq, sum_v + share * dv), None

    # A loop of four: the dynamics stand once in the program, which compiles in a quarter of the time.
    o = jnp.zeros_like(q), jnp.zeros_like(v)
    (_, _, dq, dv), _ = jax.lax.scan(stage, (*o, *o), (np.array([0, 0.5, 0.5, 1]), np.array([1, 2, 2, 1]) / 6))
    return normalised(model, q + h * dq), v + h * dv


def rk4_step(model: Model, q: Any, v: Any, h: Any, torque: Any, wrenches: Any = None, drag: Any = 0.0) -> tuple[Any, Any]:
    """Position and velocity after time h [s] under joint torques (nv,) and wrenches on links (as `inverse_dynamics`).

    ``drag`` (nv,) is a viscous friction besides the model's, such as back-EMF.
    """

    def drive(q: Any, v: Any) -> Any:
        return torque - drag * v + spring_torques(model, q) - bias_forces(model, q, v, wrenches)

    if model.structure.friction_law == 'smooth':

        def smooth(q: Any, v: Any) -> Any:
            return forward_dynamics(
                model, q, v, torque - drag * v + spring_torques(model, q) + friction_torques(model, v), wrenches
            )

        return _runge_kutta(model, smooth, q, v, h)

    def phase(q: Any, v: Any, h: Any) -> tuple[Any, Any, Any]:
        """A piece of time in which no joint changes between sticking, sliding forward and sliding backward."""
        rest = (v == 0) & (dry_limits(model, v) > 0)
        _, held, way = stick_or_slide(
            mass_matrix(model, q), drive(q, v) + viscous_torques(model, v), dry_limits(model, v), rest, jnp.sign(v)
        )
        free = ~held

        def rate(q: Any, v: Any) -> Any:
            M = jnp.where(free[:, None] & free[None, :], mass_matrix(model, q), 0.0) + jnp.diag(held.astype(float))
            b = drive(q, v) + viscous_torques(model, v) - dry_limits(model, v) * way
            return jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(M), jnp.where(free, b, 0.0))

        q1, v1 = _runge_kutta(model, rate, q, v, h)
        return q1, jnp.where(held, 0.0, v1), way

    q1, v1, way = phase(q, v, h)
    dry = dry_limits(model, v) > 0
    crossed = dry & (v1 * way < 0)

    def split(_: None) -> tuple[Any, Any]:
        """Go to the first joint that comes to rest, by two secants, hold it there and go on with the rest of the step."""
        starts = crossed & (v * way > 0)
        part = jnp.where(starts, v / jnp.where(starts, v - v1, 1.0), 1.0)
        first = jnp.argmin(part)
        one = part[first]
        at_one = phase(q, v, one * h)[1][first]
        # Between the start, where the velocity is v, and that point or the end, on the side where it changes its sign.
        beyond = at_one * v[first] < 0
        left, at_left, right, at_right = (
            jnp.where(beyond, 0.0, one),
            jnp.where(beyond, v[first], at_one),
            jnp.where(beyond, one, 1.0),
            jnp.where(beyond, at_one, v1[first]),
        )
        gap = at_left - at_right
        two = jnp.where(jnp.any(starts), left + (right - left) * at_left / jnp.where(gap == 0, 1.0, gap), 1.0)
        qa, va, wa = phase(q, v, two * h)
        va = jnp.where((starts & (jnp.arange(model.nv) == first)) | (dry & (va * wa < 0)), 0.0, va)
        qb, vb, wb = phase(qa, va, (1 - two) * h)
        return qb, jnp.where(dry & (vb * wb < 0), 0.0, vb)

    return jax.lax.cond(jnp.any(crossed), split, lambda _: (q1, v1), None)


def symplectic_step(model: Model, q: Any, v: Any, h: Any, torque: Any, wrenches: Any = None, drag: Any = 0.0) -> tuple[Any, Any]:
    """The same by the variational midpoint rule: momentum is conserved exactly, and energy has no drift however long the simulation.

    With the discrete Lagrangian L_d(q0, q1) = h L(midpoint, difference / h), the momentum p0 gives q1 by p0 + F/2 = -D1 L_d and then
    p1 = D2 L_d + F/2 (Marsden and West 2001, (1.5.3) and (3.2.2)); D1, D2 are taken along `advance`, so that quaternions stay unit.
    F is the impulse of motors, wrenches and viscous friction; dry friction acts at both ends with half of its impulse each.
    """
    sticks = model.structure.friction_law == 'stick'
    start = jnp.zeros(model.nv)
    p = mass_matrix(model, q) @ v

    def momenta(w: Any) -> tuple[Any, Any, Any]:
        """-D1 and D2 of the discrete Lagrangian for the midpoint velocity w, and the end of the step."""
        end = advance(model, q, h * w)

        def action(before: Any, after: Any) -> Any:
            a, b = advance(model, q, before), advance(model, end, after)
            u = difference(model, a, b) / h
            middle = advance(model, a, h / 2 * u)
            return h * (kinetic_energy(model, middle, u) - potential_energy(model, middle))

        first, second = jax.grad(action, (0, 1))(start, start)
        return -first, second, end

    def impulse(w: Any) -> Any:
        F = torque - drag * w + (viscous_torques(model, w) if sticks else friction_torques(model, w))
        return h / 2 * (F if wrenches is None else F + external_forces(model, advance(model, q, h / 2 * w), wrenches))

    def end_of(M: Any, rhs: Any, w: Any) -> Any:
        if not sticks:
            return jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(M), rhs)
        limits = h / 2 * dry_limits(model, w)
        return stick_or_slide(M, rhs, limits, limits > 0, start)[0]

    def improve(state: tuple) -> tuple:
        w, *_, rounds = state
        before, after, end = momenta(w)
        M, F = mass_matrix(model, advance(model, q, h / 2 * w)), impulse(w)
        better = end_of(M, M @ w + p + F - before, w)
        # What the rounds leave over is passed on to the next step; with dry friction it is the friction itself, which is spent.
        rest = 0.0 if sticks else p + F - before
        return better, after + F + rest, end, jnp.abs(better - w).max() / (1 + jnp.abs(w).max()), rounds + 1

    # The end of the step belongs to the last w that was tried: it and the momentum there come from one discrete Lagrangian.
    first = (v, jnp.zeros_like(v), q, jnp.inf, 0)
    w, after, end, *_ = jax.lax.while_loop(lambda s: (s[3] > CONVERGED) & (s[4] < ITERATIONS), improve, first)
    return normalised(model, end), end_of(mass_matrix(model, end), after, w)
