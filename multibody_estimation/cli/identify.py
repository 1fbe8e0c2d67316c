# SPDX-License-Identifier: Apache-2.0
"""`multibody-estimation identify`: from a recording to parameters with deviations, a report, and the identified URDF."""

from typing import Annotated

import typer

__all__ = ['command']


def command(
    robot: Annotated[str, typer.Argument(help='robot file (.yaml), or a robot of this package (furuta)')],
    recording: Annotated[list[str], typer.Argument(help='rosbag2 folders, .mcap or .csv files; several are fitted together')],
    output: Annotated[str, typer.Option(help='folder for the results')] = '.',
    weight: Annotated[float | None, typer.Option(help='allowed acceleration error, rad/s^2; default: that of the robot')] = None,
    step: Annotated[float | None, typer.Option(help='seconds between states; default: the sample time')] = None,
    fix: Annotated[list[str] | None, typer.Option(help='a parameter to hold; may be repeated')] = None,
    columns: Annotated[str, typer.Option(help='mapping of the columns of .csv files (YAML)')] = '',
    report: Annotated[bool, typer.Option(help='write report.html')] = True,
) -> None:
    """Estimate a robot's parameters: prints the table, writes ROBOT.fit.yaml, report.html and, from a URDF, ROBOT.identified.urdf.

    Example: multibody-estimation identify furuta rosbags/furuta_chirp --output results
    """
    from multibody_estimation.cli.opening import open_recording, open_robot
    from multibody_estimation.cli.results import save_results
    from multibody_estimation.identification import identify

    opened = open_robot(robot)
    windows = [open_recording(path, opened, columns) for path in recording]
    fit = identify(opened.robot, windows, weight=weight, step=step, fix=fix or ())
    print(fit)
    written = save_results(fit, opened, recording[0], output, report)
    print(f'  Written: {", ".join(map(str, written))}')
    if not fit.converged:
        raise typer.Exit(2)
    last = written[-1]
    print(f'Next: multibody-estimation compare {robot} {last} {recording[0]}' if last.suffix == '.urdf' else f'Next: open {last}')
