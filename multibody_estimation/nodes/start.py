# SPDX-License-Identifier: Apache-2.0
"""How every node starts: on loopback unless told otherwise, with a sentence where ROS 2 or the messages are missing."""

import os
import sys
from importlib import import_module

__all__ = ['NODES', 'check_ros', 'prepare_environment', 'start']

NODES = ('driver', 'recorder', 'estimator', 'calibrator')
"""Each is a module of this folder with a function `main(args)`."""


def prepare_environment(environment: dict[str, str] | os._Environ = os.environ) -> None:
    """Keep discovery on this machine unless the user asked for more, and tell the wheels where they live."""
    environment.setdefault('ROS_AUTOMATIC_DISCOVERY_RANGE', 'LOCALHOST')
    if environment.get('ROS_DISTRO') is None:
        environment.setdefault('RMW_IMPLEMENTATION', 'rmw_fastrtps_cpp')
        environment.setdefault('AMENT_PREFIX_PATH', sys.prefix)


def check_ros(who: str) -> str:
    """Prepare the environment; return a sentence where ROS 2 or the messages are missing, or an empty text."""
    prepare_environment()
    try:
        import rclpy  # noqa: F401
    except ImportError as error:
        return f"The {who} needs ROS 2, but rclpy cannot be imported ({error}). Run `make build`, or pip install '.[ros]', or source a ROS 2."
    try:
        import multibody_estimation.msg  # noqa: F401
    except ImportError as error:
        return (
            f'The {who} needs the messages of this package, but they are not built ({error}). '
            'Run `make build`, or colcon build and source install/setup.bash.'
        )
    return ''


def start(node: str, args: list[str] | None = None) -> None:
    """Run a node until it is told to stop; what is missing ends it with one sentence and exit code 1."""
    missing = check_ros(node)
    if missing:
        sys.exit(missing)
    from multibody_estimation.errors import EstimationError

    try:
        import_module(f'multibody_estimation.nodes.{node}').main(args)
    except EstimationError as error:
        sys.exit(f'{node}: {error}')
