# SPDX-License-Identifier: Apache-2.0
"""`WholeBody`: a legged robot with its sensors, as `whole_body` and the estimators take it."""

from typing import Any

import numpy as np

from multibody_estimation._jax import jax, jnp, static, value
from multibody_estimation.errors import EstimationError
from multibody_estimation.tree.model import Model
from multibody_estimation.tree.momentum import total_mass

__all__ = ['WholeBody']


@value
class WholeBody:
    """A robot with its sensors; nj joints, nc feet. Standard deviations in SI units."""

    contacts: tuple[str, ...] = static()
    """Links whose frames the contact wrenches are given in; where the feet are flat, with z up on level ground."""
    imu: str = static()
    """Link or sensor of the URDF that is the IMU's frame; empty where there is none."""
    imu_orientation: bool = static()
    """Whether the IMU's orientation is that of the robot in the world; else the bearing foot gives it."""
    level_ground: bool = static()
    """Whether all footholds lie in one level plane: their height is then known, and roll and pitch of flat feet."""
    flat_feet: bool = static()
    """Whether a foot that stands does not turn. Feet that roll (points, balls) need the IMU's orientation."""
    model: Model
    encoder_noise: jax.Array
    """rad; (nj,)."""
    velocity_noise: jax.Array
    """rad/s; (nj,)."""
    wrench_noise: jax.Array
    """N and N m; (nc, 6)."""
    gyroscope_noise: jax.Array
    """rad/s; (3,)."""
    accelerometer_noise: jax.Array
    """m/s^2; (3,)."""
    orientation_noise: jax.Array
    """rad; (3,)."""
    placement_noise: jax.Array
    """What the encoders' noise does not explain of the center of mass: footholds, bending legs, the URDF; m."""
    contact_force: jax.Array
    """A foot stands when it feels more than this, and until it feels less than half of it; N."""

    @property
    def mass(self) -> float:
        """kg."""
        return float(total_mass(self.model))

    @classmethod
    def of(
        cls,
        model: Model,
        contacts: tuple[str, ...],
        *,
        imu: str = '',
        imu_orientation: bool = False,
        level_ground: bool = True,
        flat_feet: bool = True,
        encoder_noise: Any = 5e-4,
        velocity_noise: Any = 0.02,
        wrench_noise: Any = (2.0, 2.0, 2.0, 0.1, 0.1, 0.1),
        gyroscope_noise: Any = 5e-3,
        accelerometer_noise: Any = 0.1,
        orientation_noise: Any = 5e-3,
        placement_noise: float = 1e-3,
        contact_force: float | None = None,
    ) -> 'WholeBody':
        """Check and complete a `WholeBody`; noises are numbers or arrays, the contact force is 8 % of the weight by default."""
        if not model.floating:
            raise EstimationError(
                f'{model.name}: a legged robot has a floating base. Load it with load_urdf(..., floating=True).'
            )
        if set(model.joint_types) - {'revolute', 'prismatic'}:
            raise EstimationError(f'{model.name}: joints must turn about or slide along one axis.')
        if not contacts:
            raise EstimationError('No contact at all: name at least one link that touches the ground.')
        for link in contacts:
            model.link_index(link)
        if imu and imu not in model.sensor_names:
            model.link_index(imu)
        if imu_orientation and not imu:
            raise EstimationError('The orientation of the IMU is wanted, but no IMU is named.')
        if not flat_feet and not imu_orientation:
            raise EstimationError(
                "Feet that are not flat do not tell the robot's orientation: an IMU's orientation is needed (use_orientation)."
            )
        mass = float(np.sum(model.mass))
        if not mass > 0:
            raise EstimationError(f'{model.name}: a mass of {mass} kg: the mass of the whole robot must be above zero.')
        nj = len(model.joint_names)
        noise = {
            'encoder_noise': (encoder_noise, (nj,)), 'velocity_noise': (velocity_noise, (nj,)),
            'wrench_noise': (wrench_noise, (len(contacts), 6)), 'gyroscope_noise': (gyroscope_noise, (3,)),
            'accelerometer_noise': (accelerometer_noise, (3,)), 'orientation_noise': (orientation_noise, (3,)),
            'placement_noise': (placement_noise, ()), 'contact_force': (0.08 * mass * 9.81 if contact_force is None else contact_force, ()),
        }  # fmt: skip
        checked = {}
        for name, (number, shape) in noise.items():
            try:
                checked[name] = np.broadcast_to(np.asarray(number, float), shape)
            except ValueError:
                raise EstimationError(f'{name} has shape {np.shape(number)}; one number or shape {shape} is needed.') from None
            if not (np.isfinite(checked[name]).all() and (checked[name] > 0).all()):
                raise EstimationError(f'{name} = {number}: finite numbers above zero are needed.')
        return cls(
            tuple(contacts),
            imu,
            imu_orientation,
            level_ground,
            flat_feet,
            model,
            **{k: jnp.asarray(v) for k, v in checked.items()},
        )
