# SPDX-License-Identifier: Apache-2.0
"""What `doctor` looks at: Python, JAX, kernels, ROS 2 and where it comes from, messages, cache, discovery."""

import importlib.util
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ['Finding', 'examine']


@dataclass(frozen=True)
class Finding:
    """One line of the diagnosis."""

    what: str
    found: str
    good: bool = True
    remedy: str = ''
    """Command or step that repairs it."""
    optional: bool = False
    """Whether the core works without it."""


def examine() -> list[Finding]:
    """Look at everything, in the order in which things depend on each other."""
    return [*_python(), *_jax(), *_ros()]


def _python() -> Iterator[Finding]:
    import multibody_estimation

    good = (3, 11) <= sys.version_info[:2] <= (3, 13)
    yield Finding('Python', f'{platform.python_version()} ({sys.executable})', good, 'install Python 3.11, 3.12 or 3.13')
    yield Finding('multibody_estimation', f'{multibody_estimation.__version__} ({Path(multibody_estimation.__file__).parent})')


def _jax() -> Iterator[Finding]:
    try:
        from multibody_estimation._jax import cache_folder, jax, jnp
    except ImportError as error:
        yield Finding('JAX', f'cannot be imported: {error}', False, 'pip install jax')
        return
    yield Finding('JAX', f'{jax.__version__} on {jax.devices()[0].platform}')
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield Finding('compilation cache', str(folder), os.access(folder, os.W_OK), f'chmod u+w {folder}', optional=True)
    except OSError as error:
        remedy = 'set JAX_COMPILATION_CACHE_DIR to a folder that you can write'
        yield Finding('compilation cache', str(error), False, remedy, optional=True)

    from multibody_estimation.kernels import available, library_path
    from multibody_estimation.kernels.axpy import axpy

    if available('axpy'):
        x = jnp.arange(3.0)
        right = bool((axpy(2.0, x, x) == 3.0 * x).all())
        yield Finding('compiled kernels', str(library_path()), right, 'make build')
    else:
        remedy = 'apt-get install g++, then `make build` or `pip install --force-reinstall --no-deps .`'
        yield Finding('compiled kernels', 'not built: the slower pure-JAX twins serve', False, remedy, optional=True)


def _ros() -> Iterator[Finding]:
    remedy = "`make build`, or pip install '.[ros]', or source a ROS 2 Jazzy or Kilted"
    if importlib.util.find_spec('rclpy') is None:
        yield Finding(
            'ROS 2', 'rclpy is not there: the library and the command line work, the nodes do not', False, remedy, optional=True
        )
        return
    wheels = importlib.util.find_spec('ros_wheels_bootstrapper') is not None
    distro = os.environ.get('ROS_DISTRO', '')
    origin = 'PyPI wheels' if wheels else f'sourced {distro or "installation"}'
    try:
        import rclpy  # noqa: F401
    except ImportError as error:
        yield Finding('ROS 2', f'rclpy of the {origin} cannot be imported: {error}', False, remedy)
        return
    yield Finding('ROS 2', f'{origin} ({Path(rclpy.__file__).parent})')
    try:
        from multibody_estimation.msg import ParameterEstimate  # noqa: F401

        yield Finding('messages', 'built')
    except ImportError as error:
        yield Finding('messages', f'not built: {error}', False, '`make build`, or colcon build and source install/setup.bash')
    for package, use in [
        ('tf2_msgs', 'transforms are not published'),
        ('launch_ros', 'use `multibody-estimation up` in place of ros2 launch'),
    ]:
        there = importlib.util.find_spec(package) is not None
        found = 'there' if there else f'not there (no wheel exists): {use}'
        yield Finding(
            package,
            found,
            there,
            f'install ros-{distro or "kilted"}-{package.replace("_", "-")} of a ROS 2 distribution',
            optional=True,
        )
    yield Finding('middleware', os.environ.get('RMW_IMPLEMENTATION', 'default (rmw_fastrtps_cpp)'))
    reach = os.environ.get('ROS_AUTOMATIC_DISCOVERY_RANGE', 'LOCALHOST (default of this package)')
    yield Finding('discovery', f'{reach}, domain {os.environ.get("ROS_DOMAIN_ID", "0")}')
