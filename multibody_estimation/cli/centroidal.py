# SPDX-License-Identifier: Apache-2.0
"""`multibody-estimation centroidal`: center of mass, momenta and forces of a legged robot from a recording."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ['command']


def command(
    setup: Annotated[Path | None, typer.Argument(help='Setup file (YAML): the robot, its contacts and sensors.')] = None,
    recording: Annotated[Path | None, typer.Argument(help='Bag folder or .mcap file.')] = None,
    begin: Annotated[float | None, typer.Option(help='Leave out what comes before, in s from the start.')] = None,
    end: Annotated[float | None, typer.Option(help='Leave out what comes after, in s from the start.')] = None,
    output: Annotated[Path | None, typer.Option(help='File for states and covariances (.npz).')] = None,
    figure: Annotated[Path | None, typer.Option(help='File for a figure (.png, .svg, .pdf).')] = None,
    report: Annotated[Path | None, typer.Option(help='File for a report (.html).')] = None,
    truth: Annotated[Path | None, typer.Option(help='True states (.npz with time and states): errors are printed.')] = None,
    example: Annotated[
        Path | None, typer.Option(help='Write a simulated walk of the iCub with its setup into this folder.')
    ] = None,
) -> None:
    """Estimate center of mass, momenta and total force of a legged robot, with standard deviations, from its recorded sensors.

    Example, first making a recording, then using it:

    multibody-estimation centroidal --example icub_walk

    multibody-estimation centroidal icub_walk/setup.yaml icub_walk/bag --truth icub_walk/truth.npz
    """
    from multibody_estimation.errors import EstimationError

    if example is not None:
        _write_example(example)
        return
    if setup is None or recording is None:
        raise EstimationError('A setup file and a recording are needed; --example FOLDER writes both to try it.')
    from multibody_estimation.centroidal import estimate_centroidal, load_centroidal_setup
    from multibody_estimation.recording.bag import read_bag

    if report is not None:
        from multibody_estimation.reporting import check_writable

        check_writable(report)
    checked = load_centroidal_setup(setup)  # before the bag, which takes longer to read
    window = read_bag(recording)
    if begin is not None or end is not None:
        window = window.cut(begin or 0.0, window.duration + 1.0 if end is None else end)
    estimate = estimate_centroidal(window, checked)
    for defect in window.defects[:10]:
        typer.echo(defect)
    typer.echo(estimate)
    if truth is not None:
        typer.echo(_compare(estimate, truth))
    for path, what, write in ((output, 'States', estimate.save), (figure, 'Figure', lambda file: estimate.plot().savefig(file))):
        if path is None:
            continue
        try:
            write(path)
        except (OSError, ValueError) as error:
            raise EstimationError(f'{path} cannot be written: {error}.') from None
        typer.echo(f'{what}: {path}')
    if report is not None:
        from multibody_estimation.reporting import centroidal_report

        typer.echo(f'Report: {centroidal_report(estimate, window).save(report)}')


def _compare(estimate, path: Path) -> str:
    """Say how far the estimate is from true states (n, 15) at true times."""
    import numpy as np

    from multibody_estimation.centroidal.result import UNITS
    from multibody_estimation.errors import EstimationError

    try:
        with np.load(path) as truth:
            time, states = truth['time'], truth['states']
    except (OSError, ValueError, KeyError) as error:
        raise EstimationError(f'{path} is no file of true states (.npz with time and states): {error}') from None
    lines = ['Against the truth:']
    for part, where in list(estimate.layout.slices.items())[:5]:
        true = np.stack([np.interp(estimate.time, time, column) for column in states[:, where].T], axis=1)
        off = estimate[part] - true
        size, spread = np.sqrt(np.mean(off**2)), np.sqrt(np.mean((off / estimate.deviation(part)) ** 2))
        lines.append(f'  {part:<18} off by {size:.3g} {UNITS[part]} rms, {spread:.2f} standard deviations')
    return '\n'.join(lines)


def _write_example(folder: Path) -> None:
    from importlib.resources import files

    import numpy as np

    from multibody_estimation.centroidal.simulated import record, simulate_walk
    from multibody_estimation.errors import EstimationError
    from multibody_estimation.recording.write import write_bag

    if folder.exists():
        raise EstimationError(f'{folder} exists already and is not overwritten. Choose another name.')
    walk = simulate_walk()
    folder.mkdir(parents=True)
    write_bag(folder / 'bag', record(walk))
    np.savez_compressed(folder / 'truth.npz', time=walk.time, states=walk.states)
    (folder / 'setup.yaml').write_text((files('multibody_estimation.centroidal') / 'icub.yaml').read_text())
    typer.echo(f'A walk of {walk.time[-1]:.1f} s of the iCub ({walk.mass:.1f} kg), simulated, with its truth: {folder}')
    typer.echo(f'Next: multibody-estimation centroidal {folder}/setup.yaml {folder}/bag --truth {folder}/truth.npz')
