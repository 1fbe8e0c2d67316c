# SPDX-License-Identifier: Apache-2.0
"""Joint-coordinate dynamics of kinematic trees: a model from a URDF or a few lines of Python, and functions of it.

Every function takes one sample, is pure, compiles with `jax.jit`, batches with `jax.vmap` and differentiates both ways.
"""

from multibody_estimation.tree.build import Joint, Link, Sensor, build
from multibody_estimation.tree.dynamics import bias_forces, external_forces, gravity_torques, inverse_dynamics, mass_matrix
from multibody_estimation.tree.kinematics import (
    accelerations,
    forward_kinematics,
    jacobian,
    jacobian_rate_times_velocity,
    link_pose,
    sensor_pose,
    velocities,
)
from multibody_estimation.tree.model import Model

__all__ = [
    'Joint', 'Link', 'Model', 'Sensor', 'accelerations', 'bias_forces', 'build', 'external_forces', 'forward_kinematics',
    'gravity_torques', 'inverse_dynamics', 'jacobian', 'jacobian_rate_times_velocity', 'link_pose', 'mass_matrix', 'sensor_pose', 'velocities',
]  # fmt: skip
