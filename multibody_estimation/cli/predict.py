# SPDX-License-Identifier: Apache-2.0
"""`multibody-estimation predict`: roll a fitted model forward and compare it with a recording."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ['command']


def command(
    robot: Annotated[str, typer.Argument(help='robot file (.yaml), or a robot of this package (furuta)')],
    recordings: Annotated[list[Path], typer.Argument(metavar='RECORDING...', help='bags, or .csv files with --columns')],
    fit: Annotated[Path, typer.Option(help='Result of `identify`.')],
    columns: Annotated[str, typer.Option('--columns', '--csv', help='mapping of the columns of .csv files (YAML)')] = '',
    seconds: Annotated[float, typer.Option(help='Length of the windows, s.')] = 0.2,
    start: Annotated[float | None, typer.Option(help='Predict one stretch from this second on, instead of windows.')] = None,
    weight: Annotated[float | None, typer.Option(help='Allowed acceleration error of the states at the starts, rad/s^2.')] = None,
) -> None:
    """Predict windows one after another, from starts that saw only what came before, and from smoothed ones.

    Example: multibody-estimation predict furuta rosbags/furuta_chirp --fit furuta.fit.yaml --seconds 0.5
    """
    from multibody_estimation.cli.opening import open_recording, open_robot
    from multibody_estimation.identification import Fit, predict, predict_windows

    opened = open_robot(robot)
    loaded = Fit.load(fit, opened.robot)
    for path in recordings:
        window = open_recording(str(path), opened, columns)
        if start is not None:
            print(f'  {path.name}: {predict(loaded, window, start=start, seconds=seconds, weight=weight)}')
            continue
        for starts in ('causal', 'smoothed'):
            print(f'  {path.name}: {predict_windows(loaded, window, seconds=seconds, starts=starts, weight=weight)}')
