# SPDX-License-Identifier: Apache-2.0
"""Play a bag through the estimator: ros2 launch multibody_estimation replay.launch.py bag:=rosbags/furuta_chirp"""

from multibody_estimation.nodes.launching import describe


def generate_launch_description():
    """Return the nodes of the system 'replay' in nodes/bringup.py."""
    return describe('replay')
