# SPDX-License-Identifier: Apache-2.0
"""Bring up a Furuta pendulum: ros2 launch multibody_estimation furuta.launch.py device:=simulated|serial|replay|external"""

from multibody_estimation.nodes.launching import describe


def generate_launch_description():
    """Return the nodes of the system 'furuta' in nodes/bringup.py."""
    return describe('furuta')
