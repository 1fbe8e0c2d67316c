# SPDX-License-Identifier: Apache-2.0
"""Bring up an iCub-like humanoid: ros2 launch multibody_estimation icub.launch.py"""

from multibody_estimation.nodes.launching import describe


def generate_launch_description():
    """Return the nodes of the system 'icub' in nodes/bringup.py."""
    return describe('icub')
