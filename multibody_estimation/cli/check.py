# SPDX-License-Identifier: Apache-2.0
"""`multibody-estimation check`: what can be told from a recording, and what is wrong with it, before anything is solved."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ['command']


def command(
    robot: Annotated[str, typer.Argument(help='robot file (.yaml), or a robot of this package (furuta)')],
    recording: Annotated[str, typer.Argument(help='rosbag2 folder, .mcap or .csv file')],
    weight: Annotated[float | None, typer.Option(help='allowed acceleration error, rad/s^2')] = None,
    csv: Annotated[Path | None, typer.Option(help='mapping of the columns of a .csv file (YAML)')] = None,
) -> None:
    """Look at a recording: how each joint moves, how well each parameter can be told, what only shows in sums or ratios, what is wrong.

    Ends with code 0 where nothing is wrong, with 2 where there is something to look at.

    Example: multibody-estimation check furuta rosbags/furuta_chirp
    """
    from multibody_estimation.cli.opening import open_recording, open_robot
    from multibody_estimation.identification.check import check

    opened = open_robot(robot)
    found = check(opened.robot, open_recording(recording, opened, csv), weight=weight)
    print(found)
    if found.findings:
        raise typer.Exit(2)
    print(f'Next: multibody-estimation identify {robot} {recording}')
