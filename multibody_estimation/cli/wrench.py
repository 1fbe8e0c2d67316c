# SPDX-License-Identifier: Apache-2.0
"""`multibody-estimation wrench`: what the world does to a robot, and what its joints bear, from a recording."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ['command']


def command(
    setup: Annotated[Path | None, typer.Argument(help='Setup file (YAML): the robot, its sensors, contacts and noise.')] = None,
    recording: Annotated[Path | None, typer.Argument(help='Bag folder or .mcap file.')] = None,
    begin: Annotated[float | None, typer.Option(help='Leave out what comes before, in s from the start.')] = None,
    end: Annotated[float | None, typer.Option(help='Leave out what comes after, in s from the start.')] = None,
    contact: Annotated[
        list[str] | None, typer.Option(help='Link that may be touched, instead of those of the setup; repeat it for more.')
    ] = None,
    output: Annotated[Path | None, typer.Option(help='File for wrenches, torques and covariances (.npz).')] = None,
    figure: Annotated[Path | None, typer.Option(help='File for a figure (.png, .svg, .pdf).')] = None,
    learn: Annotated[
        Path | None, typer.Option(help='Learn the noise of the sensors from the recording and write the setup with it here.')
    ] = None,
    example: Annotated[
        Path | None, typer.Option(help='Simulate an iCub that is pushed with 20 N and write its bag and setup into this folder.')
    ] = None,
) -> None:
    """Estimate external wrenches, joint torques and accelerations with standard deviations from recorded sensors.

    Example, first making a recording, then using it:

    multibody-estimation wrench --example icub_push

    multibody-estimation wrench icub_push/setup.yaml icub_push/bag
    """
    from multibody_estimation.errors import EstimationError

    if example is not None:
        _write_example(example)
        return
    if setup is None or recording is None:
        raise EstimationError('A setup file and a recording are needed; --example FOLDER writes both to try it.')
    from multibody_estimation.recording.bag import read_bag
    from multibody_estimation.wrench import (
        compile_wrench,
        estimate_wrenches,
        learn_covariances,
        load_wrench,
        samples_of,
        save_wrench_setup,
    )

    model, checked = load_wrench(setup)
    if contact:
        checked = checked.with_contacts(contact)
    program = compile_wrench(model, checked)  # before the bag, which takes longer to read
    window = read_bag(recording)
    if begin is not None or end is not None:
        window = window.cut(begin or 0.0, window.duration + 1.0 if end is None else end)
    for defect in window.defects[:10]:
        typer.echo(defect)
    if learn is not None:
        data = samples_of(program, window)
        learned = learn_covariances(
            model, checked, data.position, data.velocity, data.base_velocity, data.measurements, iterations=20, floor=1e-4
        )
        typer.echo(learned)
        checked = learned.setup
        save_wrench_setup(checked, learn)
        typer.echo(f'Setup: {learn}')
    estimate = estimate_wrenches(model, window, checked)
    typer.echo(estimate)
    if output is not None:
        estimate.save(output)
        typer.echo(f'Wrenches: {output}')
    if figure is not None:
        estimate.plot().savefig(figure)
        typer.echo(f'Figure: {figure}')


def _write_example(folder: Path) -> None:
    from importlib.resources import files

    from multibody_estimation.errors import EstimationError
    from multibody_estimation.hardware.collect import collect
    from multibody_estimation.hardware.mujoco_icub import MujocoIcub, Push
    from multibody_estimation.recording.write import write_bag

    if folder.exists():
        raise EstimationError(f'{folder} exists already and is not overwritten. Choose another name.')
    push = Push('l_forearm', 1.5, 1.5, (0.0, 20.0, 0.0))
    window = collect(MujocoIcub(realtime=False, amplitude=0.15, pushes=(push,), epoch=1_700_000_000_000_000_000), 4.5)
    folder.mkdir(parents=True)
    write_bag(folder / 'bag', window)
    (folder / 'setup.yaml').write_text((files('multibody_estimation.wrench') / 'icub.yaml').read_text())
    typer.echo(
        f'{window.duration:.1f} s of a simulated iCub that is held at its root and pushed on l_forearm with 20 N from 1.5 s to 3 s: {folder}'
    )
    typer.echo(f'Next: multibody-estimation wrench {folder}/setup.yaml {folder}/bag')
