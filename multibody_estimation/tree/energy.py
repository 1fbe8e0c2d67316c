# SPDX-License-Identifier: Apache-2.0
"""Kinetic and potential energy."""

from typing import Any

import numpy as np

from multibody_estimation._jax import jnp
from multibody_estimation.geometry.spatial import inertia_times
from multibody_estimation.tree.bodies import true_gravity
from multibody_estimation.tree.dynamics import base_inertias, rotor_inertia
from multibody_estimation.tree.joint_torques import one_degree
from multibody_estimation.tree.kinematics import body_velocities, frames
from multibody_estimation.tree.model import Model, check
from multibody_estimation.tree.momentum import center_of_mass, total_mass

__all__ = ['kinetic_energy', 'potential_energy']


def kinetic_energy(model: Model, position: Any, velocity: Any) -> Any:
    """Kinetic energy of all bodies and rotors [J]; ()."""
    check(model, position, velocity)
    v, f = jnp.asarray(velocity, dtype=float), frames(model, position)
    V = body_velocities(model, f, v)
    return 0.5 * ((V * inertia_times(*base_inertias(f), V)).sum() + (rotor_inertia(model) * v * v).sum())


def potential_energy(model: Model, position: Any) -> Any:
    """Energy of weight, zero at the world's origin, and of the joint springs [J]; ()."""
    q = jnp.asarray(position, dtype=float)
    j, iq, _ = one_degree(model)
    spring = (
        0.5 * (jnp.asarray(model.stiffness)[j] * (q[iq] - jnp.asarray(model.spring_rest)[j]) ** 2).sum()
        if len(j)
        else np.zeros(())
    )
    return spring - total_mass(model) * (center_of_mass(model, q) @ jnp.asarray(true_gravity(model)))
