# SPDX-License-Identifier: Apache-2.0
"""Calibrate a force/torque sensor: ros2 launch multibody_estimation calibration.launch.py device:=can port:=can0 sensor:=l_arm"""

from multibody_estimation.nodes.launching import describe


def generate_launch_description():
    """Return the nodes of the system 'calibration' in nodes/bringup.py."""
    return describe('calibration')
