# SPDX-License-Identifier: Apache-2.0
"""Furuta pendulum: an arm driven about the vertical, and a pendulum that swings about the arm's own axis."""

from multibody_estimation import tree
from multibody_estimation.errors import EstimationError
from multibody_estimation.identification.observations import Encoder, Input
from multibody_estimation.identification.robot import Robot
from multibody_estimation.robots.table import Row, make

__all__ = ['furuta']

MASS, SPIN = 0.1, 4e-6
"""Mass (kg) and spin inertia (kg m^2) of the rod: weighed, not estimated; joint torques fix only ratios to them."""

# name, title, unit, truth, start, lower, upper, scale
ROWS = (
    Row('arm_link.inertia.zz', 'arm inertia', 'kg m^2', 2e-3, 2.8e-3, 1e-6, 1.0),
    Row('pendulum.placement.x', 'arm length', 'm', 0.2, 0.14, 0.01, 2.0),
    Row('rod.center_of_mass.z', 'pendulum centre of mass', 'm', -0.15, -0.105, -2.0, -0.01),
    Row('rod.inertia.xx', 'pendulum inertia', 'kg m^2', 7.5e-4, 1.1e-3, 1e-6, 1.0),
    Row('rod.inertia.yy', 'pendulum cross inertia', 'kg m^2', 7.48e-4, 1.0e-3, 1e-6, 1.0),
    Row('arm.damping', 'arm damping', 'N m s/rad', 1e-3, 6e-4, 0.0, 1.0),
    Row('pendulum.damping', 'pendulum damping', 'N m s/rad', 1e-4, 1.5e-4, 0.0, 1.0),
    Row('arm.coulomb', 'arm dry friction', 'N m', 4e-3, 2.6e-3, 0.0, 1.0),
    Row('pendulum.coulomb', 'pendulum dry friction', 'N m', 5e-4, 7e-4, 0.0, 1.0),
    Row('command.offset', 'torque offset', 'N m', 1e-3, 0.0, -1.0, 1.0, 1e-3),
    Row('encoders.offset.pendulum', 'pendulum encoder offset', 'rad', 0.03, 0.0, -1.0, 1.0, 0.03),
    Row('gravity.tilt_x', 'tilt about x', 'rad', 0.010, 0.0, -0.3, 0.3, 0.02),
    Row('gravity.tilt_y', 'tilt about y', 'rad', -0.015, 0.0, -0.3, 0.3, 0.02),
)
GAIN, BACK_EMF = 0.01, 4e-4


def furuta(
    *, truth: bool = False, drive: str = 'torque', tilt: bool = True, noise: float = 2e-3, quantisation: float = 0.0
) -> Robot:
    """Return a tabletop Furuta pendulum with two encoders (signal ``encoders``: arm, pendulum) and one motor (``command``).

    The numbers start 30 to 50 % away from those of the simulated pendulum; ``truth=True`` gives that one.
    drive: ``torque`` (command in N m) or ``voltage`` (command in V; the gain is known, back-EMF counts as arm damping).
    tilt: estimate by how much the base is out of level. noise, quantisation: of the encoders, in rad.
    """
    if drive not in ('torque', 'voltage'):
        raise EstimationError(f"drive is '{drive}'; it can be 'torque' or 'voltage'.")
    links = [tree.Link('base'), tree.Link('arm_link', 0.2, (0, 0, 0), (2e-3,) * 3), tree.Link('rod', MASS, (0, 0, -0.15), (7.5e-4, 7.48e-4, SPIN))]  # fmt: skip
    joints = [
        tree.Joint('arm', 'base', 'arm_link', friction_velocity=0.05, effort_limit=0.2, velocity_limit=40.0),
        tree.Joint('pendulum', 'arm_link', 'rod', axis=(1, 0, 0), position=(0.2, 0, 0), friction_velocity=0.05),
    ]
    command = Input(joint='arm') if drive == 'torque' else Input(joint='arm', kind='voltage', gain=GAIN, back_emf=BACK_EMF)
    rows = [r for r in ROWS if tilt or not r.name.startswith('gravity')]
    encoder = Encoder(joints=('arm', 'pendulum'), noise=noise, quantisation=quantisation)
    return make('furuta', tree.build(links, joints, name='furuta'), [command], [encoder], rows, truth=truth)
