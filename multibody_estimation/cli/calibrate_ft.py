# SPDX-License-Identifier: Apache-2.0
"""`multibody-estimation calibrate-ft`: calibrate a force/torque sensor from recordings."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ['command']


def command(
    bags: Annotated[list[Path], typer.Argument(metavar='BAG...', help='One bag with a plan, or one bag for each --load.')],
    plan: Annotated[
        Path | None, typer.Option(help='Datasets and their spans (YAML), or a calibration the node has saved.')
    ] = None,
    load: Annotated[list[str] | None, typer.Option(help='Load of each bag in turn: `empty`, or kg@x,y,z in m.')] = None,
    strain: Annotated[str, typer.Option(help='Strain signal, e.g. ft/left_arm/strain; found where there is only one.')] = '',
    imu: Annotated[str, typer.Option(help='IMU, e.g. imu; found where there is only one.')] = '',
    imu_rotation: Annotated[
        str, typer.Option(help='Quaternion x,y,z,w that turns the axes of the IMU into the sensor.')
    ] = '0,0,0,1',
    seconds: Annotated[float, typer.Option(help='Length of a static sample in s.')] = 1.0,
    method: Annotated[str, typer.Option(help='likelihood, two_stage or one_stage.')] = 'likelihood',
    factory: Annotated[Path | None, typer.Option(help='Factory matrix, 6 rows of 6 numbers (CSV), N and N m per count.')] = None,
    serial: Annotated[str, typer.Option(help='Serial number of the sensor.')] = '',
    output: Annotated[Path, typer.Option(help='Where the calibration goes.')] = Path('calibration.yaml'),
    figures: Annotated[Path | None, typer.Option(help='Folder for figures.')] = None,
    report: Annotated[Path | None, typer.Option(help='File for a report (.html).')] = None,
    check: Annotated[bool, typer.Option('--check', help='Only say whether the data are enough, and what to add.')] = False,
    hold_out: Annotated[list[str] | None, typer.Option(help='Dataset to keep out of the fit and to judge it by.')] = None,
    wanted: Annotated[float, typer.Option(help='Accuracy wanted of each row of the matrix, as a share.')] = 0.05,
    xml: Annotated[
        Path | None, typer.Option(help='Also write the matrix on top of the factory matrix, as iCub robots load it.')
    ] = None,
    sensor: Annotated[str, typer.Option(help='Name of the sensor in that file, e.g. l_arm_ft_sensor.')] = 'ft_sensor',
) -> None:
    """Calibrate a force/torque sensor from bags with raw strain and IMU; the same numbers as the calibrator node.

    Example: multibody-estimation calibrate-ft empty_bag front_bag side_bag --load empty --load 1.0@0.1,0,0.05 --load 0.8@0,0.1,0.05

    Example: multibody-estimation calibrate-ft session_bag --plan calibration.yaml --output again.yaml
    """
    from dataclasses import replace

    import numpy as np

    from multibody_estimation.calibration.gating import datasets_of
    from multibody_estimation.calibration.guide import what_next
    from multibody_estimation.calibration.offline import (
        Plan,
        Stretch,
        collect,
        find_signals,
        parse_load,
        read_plan,
        rotation_matrix,
    )
    from multibody_estimation.calibration.quality import compare_with_factory, quality
    from multibody_estimation.calibration.readings import Readings
    from multibody_estimation.calibration.robot_file import save_robot_xml
    from multibody_estimation.calibration.session import Session, advice, compute, save
    from multibody_estimation.errors import EstimationError, did_you_mean
    from multibody_estimation.recording.bag import read_bag

    def numbers(text: str) -> list[float]:
        try:
            return [float(x) for x in text.split(',')]
        except ValueError:
            raise EstimationError(f"'{text}' is no list of numbers.") from None

    if (plan is None) == (not load):
        raise EstimationError('Say what hung on the sensor: either --plan FILE, or one --load for each bag.')
    if plan is not None and len(bags) != 1:
        raise EstimationError(f'A plan speaks of one bag; there are {len(bags)}.')
    if load and len(load) != len(bags):
        raise EstimationError(f'There are {len(bags)} bags and {len(load)} loads; give one --load for each bag.')
    if xml is not None and factory is None:
        raise EstimationError('--xml writes a matrix on top of the factory matrix; give that with --factory.')
    if report is not None:
        from multibody_estimation.reporting import check_writable

        check_writable(report)
    matrix = None
    if factory is not None:
        try:
            matrix = np.loadtxt(factory, delimiter=',')
        except (OSError, ValueError) as error:
            raise EstimationError(f'{factory} cannot be read as a matrix: {error}.') from None
    session = Session(serial, factory=matrix)
    rotation = rotation_matrix(numbers(imu_rotation))
    for k, bag in enumerate(bags):
        window = read_bag(bag)
        if plan is not None:
            todo = read_plan(plan, window)
        else:
            what = parse_load((load or [])[k])
            # The offset may have moved between two recordings, so each is a dataset of its own.
            taken = [s.dataset for s in session.samples]
            name = str(what) if str(what) not in taken else f'{what} ({bag.name})'
            todo = Plan((Stretch(name, what, 0, 2**62),), seconds=seconds)
        names = find_signals(window, strain or todo.strain, imu or todo.imu)
        session = Session(serial or todo.serial, session.samples, factory=matrix, last_number=session.last_number)
        before = len(session.samples)
        session = collect(session, Readings.of(window, *names, rotation), todo)
        typer.echo(f'{bag}: {len(session.samples) - before} static samples')
    named = list(dict.fromkeys(s.dataset for s in session.samples))
    for name in hold_out or []:
        if name not in named:
            raise EstimationError(f"There is no dataset '{name}' to hold out.{did_you_mean(name, named)}")
    unseen = datasets_of([s for s in session.samples if s.dataset in (hold_out or [])])
    session = replace(session, samples=tuple(s for s in session.samples if s.dataset not in (hold_out or [])))
    found = advice(session, wanted=wanted)
    typer.echo(found.table() if check else found)
    if found.rank == 40 and (following := what_next(session, wanted=wanted)):
        typer.echo(following)
    if check:
        raise typer.Exit(0 if found.enough else 1)
    session = compute(session, method)
    typer.echo(session.calibration)
    if session.quality is not None:
        typer.echo(session.quality)
    datasets = datasets_of(session.samples)
    if unseen and session.calibration is not None:
        # Another mounting has another offset, so each is given its best: the matrix is judged.
        typer.echo(quality(session.calibration, unseen, matrix=session.calibration.matrix))
    if matrix is not None and session.calibration is not None:
        typer.echo(compare_with_factory(session.calibration, unseen or datasets, matrix))
    path = save(session, output.absolute().parent, output.name)
    typer.echo(f'Calibration: {path}')
    if xml is not None and matrix is not None and session.calibration is not None:
        typer.echo(f'For the robot: {save_robot_xml(session.calibration, matrix, sensor, xml)}')
    if report is not None and session.calibration is not None:
        from multibody_estimation.reporting import calibration_report

        made = calibration_report(session.calibration, datasets, held_out=session.quality, factory=matrix)
        typer.echo(f'Report: {made.save(report)}')
    if figures is not None and session.calibration is not None:
        from multibody_estimation.reporting.calibration_figures import save_calibration_figures

        for file in save_calibration_figures(session.calibration, datasets, figures, factory=matrix):
            typer.echo(f'Figure: {file}')
