# SPDX-License-Identifier: Apache-2.0
"""Deferred correction: the error that the second-order scheme makes on an accurate solution, to be taken out as a constant.

From each inner stage the motion is integrated to both neighbours by Runge-Kutta 4; the speed is adjusted until the accurate solution
has the observed central difference; then the scheme is evaluated on it. Needs forward dynamics, no derivatives.
"""

from typing import Any

from multibody_estimation._jax import jax, jnp
from multibody_estimation.identification import dynamics

__all__ = ['advance', 'defect']


def advance(model: Any, x: Any, v: Any, force: Any, loss: Any, dt: Any) -> tuple[Any, Any]:
    """One Runge-Kutta step of dt (a scalar or (n,)); x, v, force (nq, n); loss (nq,): force lost per speed in the motors."""

    def rates(x, v):
        return v, dynamics.accelerations(model, x, v, force - loss[:, None] * v)

    k1 = rates(x, v)
    k2 = rates(x + dt / 2 * k1[0], v + dt / 2 * k1[1])
    k3 = rates(x + dt / 2 * k2[0], v + dt / 2 * k2[1])
    k4 = rates(x + dt * k3[0], v + dt * k3[1])
    x = x + dt / 6 * (k1[0] + 2 * k2[0] + 2 * k3[0] + k4[0])
    return x, v + dt / 6 * (k1[1] + 2 * k2[1] + 2 * k3[1] + k4[1])


def defect(model: Any, position: Any, speed: Any, applied: Any, loss: Any, step: Any, substeps: int = 4) -> jax.Array:
    """Acceleration error of the scheme, (nq, m).

    position, speed (nq, m): at the inner stages, the speed by central differences. applied: input forces as hat mean, before and
    after the stage, each (nq, m), without back-EMF.
    """
    hat, before, after = applied
    m = position.shape[1]
    sign = jnp.concatenate([jnp.ones(m), -jnp.ones(m)])
    u = jnp.concatenate([after, before], 1)
    start = jnp.concatenate([position, position], 1)

    def shoot(v):
        def one(state, _):
            x, speed = state
            return advance(model, x, speed, u, loss, sign * step / substeps), None

        return jax.lax.scan(one, (start, jnp.concatenate([v, v], 1)), None, length=substeps)[0][0]

    ends = shoot(speed)
    # The speed whose accurate solution has the observed central difference; what is left is of fourth order in the step.
    ends = shoot(2 * speed - (ends[:, :m] - ends[:, m:]) / (2 * step))
    forward, backward = ends[:, :m], ends[:, m:]
    vc, ac = (forward - backward) / (2 * step), (forward - 2 * position + backward) / step**2
    force = dynamics.inverse_dynamics(model, position, vc, ac) - hat + loss[:, None] * vc
    error = dynamics.solve_small(dynamics.mass_matrix(model, position, vc)[0], force)
    return jnp.where(jnp.isfinite(error), error, 0.0)
