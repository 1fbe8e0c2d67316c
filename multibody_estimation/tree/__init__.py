# SPDX-License-Identifier: Apache-2.0
"""Joint-coordinate dynamics of kinematic trees: a model from a URDF or a few lines of Python, and functions of it.

Every function takes one sample, is pure, compiles with `jax.jit`, batches with `jax.vmap` and differentiates both ways.
"""

from multibody_estimation.tree import small
from multibody_estimation.tree.build import Joint, Link, Sensor, build
from multibody_estimation.tree.dynamics import bias_forces, external_forces, gravity_torques, inverse_dynamics, mass_matrix
from multibody_estimation.tree.energy import kinetic_energy, potential_energy
from multibody_estimation.tree.find import find_urdf
from multibody_estimation.tree.forward_dynamics import forward_dynamics
from multibody_estimation.tree.joint_torques import friction_torques, joint_torques, motor_torques, spring_torques
from multibody_estimation.tree.kinematics import (
    accelerations,
    forward_kinematics,
    jacobian,
    jacobian_rate_times_velocity,
    link_pose,
    sensor_pose,
    velocities,
)
from multibody_estimation.tree.leaves import get_leaf, leaf_names, set_leaf
from multibody_estimation.tree.model import Model
from multibody_estimation.tree.momentum import (
    center_of_mass,
    center_of_mass_acceleration,
    center_of_mass_jacobian,
    center_of_mass_velocity,
    centroidal_momentum,
    centroidal_momentum_matrix,
    centroidal_momentum_rate,
    total_mass,
)
from multibody_estimation.tree.positions import advance, difference, neutral_position, normalised
from multibody_estimation.tree.regressor import inertial_parameters, joint_torque_regressor, with_inertial_parameters
from multibody_estimation.tree.simulation import Trajectory, simulate
from multibody_estimation.tree.urdf import load_urdf

__all__ = [
    'Joint', 'Link', 'Model', 'Sensor', 'Trajectory', 'accelerations', 'advance', 'bias_forces', 'build', 'center_of_mass',
    'center_of_mass_acceleration', 'center_of_mass_jacobian', 'center_of_mass_velocity', 'centroidal_momentum',
    'centroidal_momentum_matrix', 'centroidal_momentum_rate', 'difference', 'external_forces', 'find_urdf', 'forward_dynamics',
    'forward_kinematics', 'friction_torques', 'get_leaf', 'gravity_torques', 'inertial_parameters', 'inverse_dynamics',
    'jacobian', 'jacobian_rate_times_velocity', 'joint_torque_regressor', 'joint_torques', 'kinetic_energy', 'leaf_names',
    'link_pose', 'load_urdf', 'mass_matrix', 'motor_torques', 'neutral_position', 'normalised', 'potential_energy',
    'sensor_pose', 'set_leaf', 'simulate', 'small', 'spring_torques', 'total_mass', 'velocities', 'with_inertial_parameters',
]  # fmt: skip
