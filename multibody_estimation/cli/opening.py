# SPDX-License-Identifier: Apache-2.0
"""What the verbs are given: a robot by its file or by its name, a recording by its path."""

import inspect
from dataclasses import dataclass, field
from pathlib import Path

from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.identification.robot import Robot
from multibody_estimation.window import Window

__all__ = ['Opened', 'open_recording', 'open_robot']


@dataclass(frozen=True)
class Opened:
    """A robot, with its files where it comes from files."""

    robot: Robot
    stem: str
    """What results are named after."""
    urdf: Path | None = None
    topics: dict[str, str] = field(default_factory=dict)


def open_robot(text: str) -> Opened:
    """A robot file (``my_robot.yaml``), or the name of a robot of this package (``furuta``)."""
    from multibody_estimation import robots
    from multibody_estimation.robots.robot_file import read_robot_file

    own = [n for n in robots.__all__ if inspect.isfunction(getattr(robots, n))]
    if text in own:
        return Opened(getattr(robots, text)(), text)
    if Path(text).suffix in ('.yaml', '.yml'):
        file = read_robot_file(text)
        return Opened(file.robot, Path(text).stem, file.urdf, file.topics)
    hint = did_you_mean(text, own) or f' Robots of this package: {", ".join(own)}.'
    if Path(text).suffix in ('.urdf', '.xml'):
        hint = ' A URDF does not say what is measured: write a robot file with `urdf:` and `sensors:` and give that.'
    raise EstimationError(f"'{text}' is neither a robot file (.yaml) nor a robot of this package.{hint}")


def open_recording(path: str | Path, opened: Opened, mapping: str | Path | None = None) -> Window:
    """A rosbag2 folder or .mcap file, or a CSV file with its mapping of columns; it must hold what the robot's inputs and sensors read."""
    from multibody_estimation.recording.bag import read_bag
    from multibody_estimation.recording.csv import read_csv

    if Path(path).suffix == '.csv':
        if not mapping:
            raise EstimationError(f'{path}: say which column is which with --csv mapping.yaml.')
        window = read_csv(path, mapping)
    else:
        window = read_bag(path, opened.topics or None)
    for signal in [p.signal for p in opened.robot.inputs] + [p.signal for p in opened.robot.sensors]:
        if signal not in window:
            known = sorted(window)
            raise EstimationError(
                f"{path}: no signal '{signal}', which {opened.stem} needs; it has {', '.join(known)}."
                f'{did_you_mean(signal, known)} Name its topic in the robot file: {signal}: {{topic: /...}}.'
            )
    return window
