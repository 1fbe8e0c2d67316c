# SPDX-License-Identifier: Apache-2.0
"""Centre of mass and centroidal momentum (Orin, Goswami, Lee 2013): momentum of the whole robot about its centre of mass, world axes.

With the momentum of all bodies in base coordinates, H = sum I_b V_b = A v, the centroidal momentum is H moved to the centre of mass
and turned into world axes; its rate is the sum of all external wrenches about the centre of mass, gravity included.
"""

from typing import Any

from multibody_estimation._jax import jnp
from multibody_estimation.geometry.spatial import apply, cross, cross_force, inertia_times
from multibody_estimation.tree.bodies import layout
from multibody_estimation.tree.dynamics import base_inertias
from multibody_estimation.tree.kinematics import Frames, body_accelerations, body_velocities, frames
from multibody_estimation.tree.model import Model, check

__all__ = ['center_of_mass', 'center_of_mass_acceleration', 'center_of_mass_jacobian', 'center_of_mass_velocity', 'centroidal_momentum',
           'centroidal_momentum_matrix', 'centroidal_momentum_rate', 'total_mass']  # fmt: skip


def total_mass(model: Model) -> Any:
    """Mass of the whole robot [kg]; ()."""
    return model.mass.sum()


def _center(f: Frames) -> Any:
    """Centre of mass in the base frame; (3,)."""
    m, h, _ = base_inertias(f)
    return h.sum(0) / m.sum()


def _centroidal(f: Frames, wrench: Any) -> Any:
    """Move wrenches or momenta (..., 6) from base coordinates to the centre of mass, world axes."""
    linear = wrench[..., :3]
    angular = wrench[..., 3:] - cross(_center(f) * jnp.ones_like(linear), linear)
    return jnp.concatenate([apply(f.base_rotation, linear), apply(f.base_rotation, angular)], -1)


def center_of_mass(model: Model, position: Any) -> Any:
    """Centre of mass of the whole robot in the world [m]; (3,)."""
    check(model, position)
    f = frames(model, position)
    return f.base_position + apply(f.base_rotation, _center(f))


def center_of_mass_jacobian(model: Model, position: Any) -> Any:
    """Map from the velocity vector to the velocity of the centre of mass in world axes; (3, nv)."""
    return centroidal_momentum_matrix(model, position)[:3] / total_mass(model)


def center_of_mass_velocity(model: Model, position: Any, velocity: Any) -> Any:
    """Velocity of the centre of mass in world axes [m/s]; (3,)."""
    return centroidal_momentum(model, position, velocity)[:3] / total_mass(model)


def center_of_mass_acceleration(model: Model, position: Any, velocity: Any, acceleration: Any) -> Any:
    """Acceleration of the centre of mass in world axes, without gravity [m/s^2]; (3,)."""
    return centroidal_momentum_rate(model, position, velocity, acceleration)[:3] / total_mass(model)


def centroidal_momentum_matrix(model: Model, position: Any) -> Any:
    """Map A from the velocity vector to the centroidal momentum (linear, angular); (6, nv)."""
    check(model, position)
    at, f = layout(model.structure), frames(model, position)
    m, h, I = base_inertias(f)
    composite = at.below @ jnp.concatenate([jnp.asarray(m)[:, None], h, I.reshape(-1, 9)], -1)
    c = composite[at.dof_body]  # all that a degree of freedom moves
    return _centroidal(f, inertia_times(c[:, 0], c[:, 1:4], c[:, 4:].reshape(-1, 3, 3), f.motion)).T


def centroidal_momentum(model: Model, position: Any, velocity: Any) -> Any:
    """Momentum of the whole robot [kg m/s] and angular momentum about its centre of mass [kg m^2/s], world axes; (6,)."""
    check(model, position, velocity)
    f = frames(model, position)
    V = body_velocities(model, f, jnp.asarray(velocity, dtype=float))
    return _centroidal(f, inertia_times(*base_inertias(f), V).sum(0))


def centroidal_momentum_rate(model: Model, position: Any, velocity: Any, acceleration: Any) -> Any:
    """Rate of `centroidal_momentum` [N, N m], A dv/dt + dA/dt v: the sum of contact wrenches and weight; (6,)."""
    check(model, position, velocity, acceleration)
    v, a = jnp.asarray(velocity, dtype=float), jnp.asarray(acceleration, dtype=float)
    f = frames(model, position)
    V = body_velocities(model, f, v)
    A, I = body_accelerations(model, f, V, v, a), base_inertias(f)
    # The rate of H in a frame at rest; about the moving centre of mass the rate is the same, for its velocity is along H's linear part.
    return _centroidal(f, (inertia_times(*I, A) + cross_force(V, inertia_times(*I, V))).sum(0))
