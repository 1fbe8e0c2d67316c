# SPDX-License-Identifier: Apache-2.0
"""`multibody-estimation identify`: from a recording to parameters with deviations, a report, and the identified URDF."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ['command']


def command(
    robot: Annotated[str, typer.Argument(help='robot file (.yaml), or a robot of this package (furuta)')],
    recording: Annotated[list[str], typer.Argument(help='rosbag2 folders, .mcap or .csv files; several are fitted together')],
    output: Annotated[Path, typer.Option(help='folder for the results')] = Path('.'),
    weight: Annotated[float | None, typer.Option(help='allowed acceleration error, rad/s^2; default: that of the robot')] = None,
    step: Annotated[float | None, typer.Option(help='seconds between states; default: the sample time')] = None,
    fix: Annotated[list[str] | None, typer.Option(help='a parameter to hold; may be repeated')] = None,
    start: Annotated[list[str] | None, typer.Option(help='another first guess, NAME=VALUE in SI units; may be repeated')] = None,
    columns: Annotated[str, typer.Option('--columns', '--csv', help='mapping of the columns of .csv files (YAML)')] = '',
    form: Annotated[str, typer.Option(help='joint_space, maximal or paper')] = 'joint_space',
    choose: Annotated[
        bool, typer.Option('--choose-weight', help='choose the weight: leave one recording out; by evidence where there is one')
    ] = False,
    held_out: Annotated[list[str] | None, typer.Option(help='a recording to judge the result by; may be repeated')] = None,
    influence: Annotated[bool, typer.Option('--influence', help='also say how the result hangs on weight and time step')] = False,
) -> None:
    """Estimate a robot's parameters: prints the table, writes ROBOT.fit.yaml, report.html and, from a URDF, ROBOT.identified.urdf.

    Columns of a CSV file:  {time: t, signals: {encoders: {unit: rad, columns: {arm: q0}}, command: {unit: V, columns: {arm: u}}}}

    Example: multibody-estimation identify furuta rosbags/furuta_chirp --output results
    """
    from multibody_estimation.cli.opening import open_recording, open_robot
    from multibody_estimation.cli.results import save_results
    from multibody_estimation.errors import EstimationError
    from multibody_estimation.identification import choose_weight, identify, predict_windows
    from multibody_estimation.identification import influence as influence_on

    starts = {}
    for text in start or []:
        name, _, value = text.partition('=')
        try:
            starts[name.strip()] = float(value)
        except ValueError:
            raise EstimationError(f"--start '{text}': write NAME=VALUE, e.g. --start arm.damping=0.001.") from None
    opened = open_robot(robot)
    windows = [open_recording(path, opened, columns) for path in recording]
    if choose:
        method = 'leave_one_out' if len(windows) > 1 else 'evidence'
        choice = choose_weight(opened.robot, windows, method=method, starts='smoothed', step=step, fix=tuple(fix or ()))
        print(choice)
        weight = choice.best
    fit = identify(opened.robot, windows, weight=weight, step=step, fix=fix or (), start=starts, form=form)
    print(fit)
    if influence and form == 'joint_space':
        print(influence_on(fit))
    for path in held_out or []:
        for protocol in ('causal', 'smoothed'):
            print(f'  {path}: {predict_windows(fit, open_recording(path, opened, columns), starts=protocol)}')
    written = save_results(fit, opened, recording[0], output)
    print(f'  Written: {", ".join(map(str, written))}')
    if not fit.converged:
        raise typer.Exit(2)
    last = written[-1]
    print(f'Next: multibody-estimation compare {robot} {last} {recording[0]}' if last.suffix == '.urdf' else f'Next: open {last}')
