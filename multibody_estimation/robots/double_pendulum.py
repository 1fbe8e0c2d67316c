# SPDX-License-Identifier: Apache-2.0
"""Double pendulum: two links in a vertical plane, a motor at the shoulder, none at the elbow."""

from multibody_estimation import tree
from multibody_estimation.identification.observations import Encoder, Input
from multibody_estimation.identification.robot import Robot
from multibody_estimation.robots.table import Row, make

__all__ = ['double_pendulum']

# name, title, unit, truth, start, lower, upper, scale
ROWS = (
    Row('upper.center_of_mass.z', 'upper centre of mass', 'm', -0.12, -0.17, -2.0, -0.01),
    Row('upper.inertia.yy', 'upper inertia', 'kg m^2', 2.5e-3, 3.6e-3, 1e-6, 1.0),
    Row('lower.mass', 'lower mass', 'kg', 0.2, 0.14, 0.01, 10.0),
    Row('lower.center_of_mass.z', 'lower centre of mass', 'm', -0.1, -0.07, -2.0, -0.01),
    Row('lower.inertia.yy', 'lower inertia', 'kg m^2', 8e-4, 1.2e-3, 1e-6, 1.0),
    Row('shoulder.damping', 'shoulder damping', 'N m s/rad', 5e-3, 3e-3, 0.0, 1.0),
    Row('elbow.damping', 'elbow damping', 'N m s/rad', 1e-3, 1.5e-3, 0.0, 1.0),
    Row('shoulder.coulomb', 'shoulder dry friction', 'N m', 0.01, 0.006, 0.0, 1.0),
    Row('elbow.coulomb', 'elbow dry friction', 'N m', 2e-3, 3e-3, 0.0, 1.0),
)


def double_pendulum(*, truth: bool = False, noise: float = 1e-3) -> Robot:
    """Return a double pendulum with encoders ``encoders`` (shoulder, elbow; rad) and the shoulder's torque ``command`` (N m).

    The numbers start 30 to 50 % away from those of the simulated one; ``truth=True`` gives that one. The upper link's mass and
    length are known.
    """
    links = [
        tree.Link('base'),
        tree.Link('upper', 0.3, (0, 0, -0.12), (2.5e-3, 2.5e-3, 1e-4)),
        tree.Link('lower', 0.2, (0, 0, -0.1), (8e-4, 8e-4, 5e-5)),
    ]
    joints = [
        tree.Joint('shoulder', 'base', 'upper', axis=(0, 1, 0), friction_velocity=0.02, effort_limit=2.0),
        tree.Joint('elbow', 'upper', 'lower', axis=(0, 1, 0), position=(0, 0, -0.25), friction_velocity=0.02),
    ]
    encoder = Encoder(joints=('shoulder', 'elbow'), noise=noise)
    model = tree.build(links, joints, name='double_pendulum')
    return make('double_pendulum', model, [Input(joint='shoulder')], [encoder], ROWS, truth=truth)
