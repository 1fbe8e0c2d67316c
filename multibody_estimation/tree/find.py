# SPDX-License-Identifier: Apache-2.0
"""Where a robot description lies: a path, or ``icub-models:<robot>`` for one of the package icub-models."""

from pathlib import Path

from multibody_estimation.errors import EstimationError, did_you_mean

__all__ = ['find_urdf']


def find_urdf(name: str, folder: str | Path = '') -> Path:
    """Return the path of a URDF; relative paths count from ``folder``."""
    package, colon, robot = name.partition(':')
    if not colon or package != 'icub-models':
        path = Path(folder, name)
        if not path.is_file():
            raise EstimationError(f'There is no URDF at {path}.')
        return path
    try:
        import icub_models
    except ImportError:
        raise EstimationError(f"'{name}' needs the package icub-models: pip install icub-models.") from None
    names = sorted(icub_models.get_robot_names())
    if robot not in names:
        raise EstimationError(f"icub-models has no robot '{robot}'.{did_you_mean(robot, names)}")
    return Path(icub_models.get_model_file(robot))
