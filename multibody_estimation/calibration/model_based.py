# SPDX-License-Identifier: Apache-2.0
"""Expected wrenches of a force/torque sensor from the model of its robot: what model-based recalibration fits to.

The contact assumption is that nothing touches the robot beyond the sensor, seen from the base: then the sensor carries the weight and
the inertial forces of that part alone, whatever the base stands on. Choose the base on the side that is in contact.
"""

from functools import partial
from typing import Any

import numpy as np

from multibody_estimation._jax import jax, jnp
from multibody_estimation.errors import EstimationError
from multibody_estimation.tree import Model, accelerations, forward_kinematics, sensor_pose, velocities
from multibody_estimation.tree.bodies import true_gravity


def links_beyond(model: Model, sensor: str) -> list[int]:
    """Links on the far side of the sensor's joint, seen from the base."""
    s = model.structure
    k = model.sensor_index(sensor)
    if s.sensor_types[k] != 'force_torque':
        raise EstimationError(f"Sensor '{sensor}' is of type {s.sensor_types[k]}; a force/torque sensor is needed.")
    child = s.link_joint_names.index(s.sensor_joints[k])
    beyond = {child}
    for i, parent in enumerate(s.parents):
        if parent in beyond:
            beyond.add(i)
    return sorted(beyond)


@partial(jax.jit, static_argnums=1)
def _expected(model: Model, sensor: str, q: Any, v: Any, a: Any) -> Any:
    """Wrench of one sample; see `expected_wrenches`."""
    far = np.array(links_beyond(model, sensor))
    R, p = (x[far] for x in forward_kinematics(model, q))
    V, A = velocities(model, q, v)[far], accelerations(model, q, v, a)[far]
    m, c, I = model.mass[far], model.center_of_mass[far], model.inertia[far]
    w, dw = V[:, 3:], A[:, 3:]
    # Newton and Euler for each link, at its centre of mass.
    f = jnp.einsum('kij,kj->ki', R, A[:, :3] + jnp.cross(dw, c) + jnp.cross(w, jnp.cross(w, c))) - true_gravity(model)
    f = m[:, None] * f
    Iw, Idw = (jnp.einsum('kij,kj->ki', I, x) for x in (w, dw))
    n = jnp.einsum('kij,kj->ki', R, Idw + jnp.cross(w, Iw))
    pose = sensor_pose(model, q, sensor)
    arm = p + jnp.einsum('kij,kj->ki', R, c) - pose[:3, 3]
    force, torque = f.sum(0), (n + jnp.cross(arm, f)).sum(0)
    sign = 1.0 if model.structure.sensor_acts_on[model.sensor_index(sensor)] in far else -1.0
    return sign * jnp.concatenate([pose[:3, :3].T @ force, pose[:3, :3].T @ torque])


def expected_wrenches(model: Model, sensor: str, positions: Any, velocity: Any = None, acceleration: Any = None) -> np.ndarray:
    """Return wrenches (n, 6) in N and N m in the sensor's axes for positions (n, nq), velocities and accelerations (n, nv).

    Without velocities and accelerations the robot is at rest. For a floating base its positions are the first seven: an IMU gives
    the orientation, and where the base is does not matter.
    """
    q = jnp.atleast_2d(jnp.asarray(positions, dtype=float))
    links_beyond(model, sensor)
    still = jnp.zeros((len(q), model.nv))
    v, a = (still if x is None else jnp.atleast_2d(jnp.asarray(x, dtype=float)) for x in (velocity, acceleration))
    if q.shape[1] != model.nq or v.shape != still.shape or a.shape != still.shape:
        raise EstimationError(
            f'{model.name}: {q.shape} positions, {v.shape} velocities and {a.shape} accelerations do not fit; {model.nq} and {model.nv} '
            'numbers per sample are needed.'
        )
    return np.asarray(jax.vmap(_expected, in_axes=(None, None, 0, 0, 0))(model, sensor, q, v, a))
