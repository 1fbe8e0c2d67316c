# SPDX-License-Identifier: Apache-2.0
"""Cart-pole: a cart on a level rail, and a pole that swings on it; position zero of the pole hangs down."""

from multibody_estimation import tree
from multibody_estimation.identification.observations import Encoder, Input
from multibody_estimation.identification.robot import Robot
from multibody_estimation.robots.table import Row, make

__all__ = ['cart_pole']

# name, title, unit, truth, start, lower, upper, scale
ROWS = (
    Row('cart.mass', 'cart mass', 'kg', 0.6, 0.85, 0.01, 100.0),
    Row('pole.mass', 'pole mass', 'kg', 0.15, 0.1, 0.001, 10.0),
    Row('pole.center_of_mass.z', 'pole centre of mass', 'm', -0.2, -0.28, -2.0, -0.01),
    Row('pole.inertia.yy', 'pole inertia', 'kg m^2', 2e-3, 1.3e-3, 1e-6, 1.0),
    Row('slide.damping', 'rail damping', 'N s/m', 0.8, 1.2, 0.0, 100.0),
    Row('slide.coulomb', 'rail dry friction', 'N', 0.3, 0.2, 0.0, 100.0),
    Row('hinge.damping', 'hinge damping', 'N m s/rad', 3e-4, 4.5e-4, 0.0, 1.0),
    Row('gravity.tilt_y', 'slope of the rail', 'rad', 0.008, 0.0, -0.3, 0.3, 0.02),
)


def cart_pole(*, truth: bool = False, noise: tuple[float, float] = (2e-4, 1e-3)) -> Robot:
    """Return a cart-pole with encoders ``encoders`` (slide in m, hinge in rad) and the cart's force ``command`` (N).

    The numbers start 30 to 50 % away from those of the simulated one; ``truth=True`` gives that one.
    """
    links = [
        tree.Link('base'),
        tree.Link('cart', 0.6, (0, 0, 0), (1e-3,) * 3),
        tree.Link('pole', 0.15, (0, 0, -0.2), (2e-3, 2e-3, 1e-5)),
    ]
    joints = [
        tree.Joint('slide', 'base', 'cart', type='prismatic', axis=(1, 0, 0), friction_velocity=0.01, effort_limit=10.0),
        tree.Joint('hinge', 'cart', 'pole', axis=(0, 1, 0), friction_velocity=0.05),
    ]
    encoder = Encoder(joints=('slide', 'hinge'), noise=noise)
    model = tree.build(links, joints, name='cart_pole')
    return make('cart_pole', model, [Input(joint='slide')], [encoder], ROWS, truth=truth)
