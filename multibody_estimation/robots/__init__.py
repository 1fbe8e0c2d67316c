# SPDX-License-Identifier: Apache-2.0
"""Robots that come with the package, each a function that returns a `Robot`; `mechanisms` in maximal coordinates."""

from multibody_estimation.robots import mechanisms
from multibody_estimation.robots.cart_pole import cart_pole
from multibody_estimation.robots.double_pendulum import double_pendulum
from multibody_estimation.robots.furuta import furuta
from multibody_estimation.robots.qube import qube

__all__ = ['cart_pole', 'double_pendulum', 'furuta', 'mechanisms', 'qube']
