# SPDX-License-Identifier: Apache-2.0
"""Quanser Qube: a small rotary pendulum driven by voltage, with a cable that pulls like a spring, on a table that is never level."""

from multibody_estimation import tree
from multibody_estimation.identification.observations import Encoder, Input
from multibody_estimation.identification.robot import Robot
from multibody_estimation.robots.table import Row, make

__all__ = ['qube']

KT, RESISTANCE = 0.042, 8.4
"""Motor constant (N m/A) and resistance (ohm) of the data sheet; their ratio is the one known scale of all forces."""
ARM_MASS, ARM, ROD_MASS, ROD = 0.095, 0.085, 0.024, 0.129
ENCODER_STEP = 0.00306796
"""Encoder step: 2048 per turn (rad)."""

# name, title, unit, truth, start, lower, upper, scale; the truth is that of the simulated one: the data sheet, mounted as on a desk
ROWS = (
    Row('arm_link.inertia.zz', 'arm inertia', 'kg m^2', 2.6e-4, ARM_MASS * ARM**2 / 3, 1e-6, 0.1),
    Row('pendulum.placement.x', 'arm length', 'm', 0.09, ARM, 0.01, 1.0),
    Row('rod.center_of_mass.z', 'pendulum centre of mass', 'm', -0.06, -ROD / 2, -1.0, -0.005),
    Row('rod.inertia.xx', 'pendulum inertia', 'kg m^2', 3.9e-5, ROD_MASS * ROD**2 / 12, 1e-7, 0.1),
    Row('rod.inertia.yy', 'pendulum cross inertia', 'kg m^2', 3.7e-5, ROD_MASS * ROD**2 / 12, 1e-7, 0.1),
    Row('arm.damping', 'arm damping and back-EMF', 'N m s/rad', 2.6e-4, KT**2 / RESISTANCE + 1e-5, 0.0, 1.0, 1e-4),
    Row('pendulum.damping', 'pendulum damping', 'N m s/rad', 1.2e-5, 1e-5, 0.0, 1.0, 1e-5),
    Row('arm.coulomb', 'arm dry friction', 'N m', 3e-4, 1e-4, 0.0, 1.0, 1e-4),
    Row('pendulum.coulomb', 'pendulum dry friction', 'N m', 5e-6, 1e-5, 0.0, 1.0, 1e-5),
    Row('arm.stiffness', 'cable spring', 'N m/rad', 8e-4, 1e-4, 0.0, 1.0, 1e-3),
    Row('command.offset', 'torque offset', 'N m', 1e-4, 0.0, -1.0, 1.0, 1e-4),
    Row('encoders.offset.pendulum', 'pendulum encoder offset', 'rad', 0.01, 0.0, -1.0, 1.0, 1e-2),
    Row('gravity.tilt_x', 'tilt about x', 'rad', 0.01, 0.0, -0.2, 0.2, 1e-2),
    Row('gravity.tilt_y', 'tilt about y', 'rad', -0.01, 0.0, -0.2, 0.2, 1e-2),
    Row('command.delay', 'delay of the command', 's', 0.007, 0.002, 0.0, 0.03, 1e-3),
)


def qube(*, truth: bool = False, weight: float = 0.3) -> Robot:
    """Return a Quanser Qube with encoders ``encoders`` (arm, pendulum; rad) and the motor's voltage ``command`` (V).

    The rod's mass and the motor's gain are those of the data sheet. weight: allowed acceleration error (rad/s^2); a real pendulum
    has cables and bearings that no model holds, see `choose_weight`.
    """
    links = [
        tree.Link('base'),
        tree.Link('arm_link', ARM_MASS, (0, 0, 0), (2e-4,) * 3),
        tree.Link('rod', ROD_MASS, (0, 0, -ROD / 2), (3.3e-5, 3.3e-5, 1e-7)),
    ]
    joints = [
        tree.Joint('arm', 'base', 'arm_link', friction_velocity=0.05, effort_limit=0.05),
        tree.Joint('pendulum', 'arm_link', 'rod', axis=(1, 0, 0), position=(ARM, 0, 0), friction_velocity=0.05),
    ]
    command = Input(joint='arm', kind='voltage', gain=KT / RESISTANCE)
    encoder = Encoder(joints=('arm', 'pendulum'), quantisation=ENCODER_STEP)
    return make('qube', tree.build(links, joints, name='qube'), [command], [encoder], ROWS, truth=truth, weight=weight)
