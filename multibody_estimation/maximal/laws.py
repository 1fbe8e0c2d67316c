# SPDX-License-Identifier: Apache-2.0
"""Laws of single rows, shared by the step and by inverse dynamics: regularisation, friction limits, contacts, limits.

Multipliers are impulses (N s or N m s); arrays have any trailing axes T.
"""

from multibody_estimation._jax import jax, jnp
from multibody_estimation.maximal.constraints import lift
from multibody_estimation.maximal.model import Multibody
from multibody_estimation.maximal.rows import pick

__all__ = ['contact_creep', 'friction_limit', 'mean_clip', 'positive', 'regularisation', 'unilateral_offset']

Array = jax.Array


def regularisation(compliance: Array, damping: Array, step: Array | float) -> tuple[Array, Array]:
    """Sigma = (4/h^2) eps Ups and Ups = 1/(1 + 4 tau/h) of each row (2.9)."""
    ups = 1 / (1 + 4 * damping / step)
    return 4 / step**2 * compliance * ups, ups


def positive(x: Array, least: float = 1e-12) -> Array:
    """Lift x to ``least`` without touching its derivative: 1/positive(d) of a coefficient that is 0 keeps d's own slope."""
    return x + jax.lax.stop_gradient(jnp.maximum(least - x, 0.0))


def friction_limit(model: Multibody, multipliers: Array, step: Array | float) -> Array:
    """Largest dry friction impulse of each dry axis, h tau_c + mu r |lambda_n| (2.23); multipliers (m, *T) -> (nd, *T).

    Joint multipliers have no sign, so the load is the norm of the joint's displacement rows, smoothed at zero by 1e-9 N s.
    """
    t = multipliers.ndim - 1
    limit = step * lift(pick(model.coulomb, model.dry), t) + jnp.zeros((len(model.dry), *multipliers.shape[1:]))
    for i in model.loaded:
        joint = model.axes[i][0]
        mine = [k for k, (j, row) in enumerate(model.rows) if j == joint and row not in (3, 4, 5)]
        load = jnp.sqrt(sum(multipliers[k] ** 2 for k in mine) + 1e-18)
        limit = limit.at[model.dry.index(i)].add(model.load_radius[i] * load)
    return limit


def mean_clip(before: Array, after: Array, creep: Array) -> Array:
    """Mean of clip(u/creep, -1, 1) while u runs linearly from before to after."""
    change = after - before
    # Both ends sliding the same way, or hardly any change: the quotient below would lose its digits, and its slope sooner.
    sliding = (jnp.minimum(before, after) >= creep) | (jnp.maximum(before, after) <= -creep)
    plain = sliding | (jnp.abs(change) < 1e-4 * creep)

    def integral(u: Array) -> Array:
        return jnp.where(jnp.abs(u) < creep, u * u / (2 * creep), jnp.abs(u) - creep / 2)

    quotient = (integral(after) - integral(before)) / jnp.where(plain, 1.0, change)
    return jnp.where(plain, jnp.clip((before + after) / (2 * creep), -1, 1), quotient)


def unilateral_offset(gap: Array, rate: Array, ups: Array, step: Array | float) -> Array:
    """Offset a of the row ``C v+ + Sigma lambda + a >= 0`` of a gap [m or rad] with its rate before the step.

    Closed (gap <= 0): Spook's damped spring as for joints. Open: the gap may close within the step, no more.
    """
    return jnp.where(gap > 0, gap / step, ups * (4 / step * gap - rate))


def contact_creep(model: Multibody, step: Array | float) -> Array:
    """Speed per tangential impulse while a contact sticks, m/s per N s; shape (nc,).

    Creep is reached at the friction of the lighter body's weight under 9.81 m/s^2, so that it means the same for a pea and a car.
    """
    heavy = jnp.concatenate([model.mass, jnp.full(1, jnp.inf)])
    mass = jnp.minimum(pick(heavy, model.contact_first), pick(heavy, model.contact_second))
    return model.contact_creep / (step * 9.81 * mass * positive(model.contact_friction, 1e-3))
