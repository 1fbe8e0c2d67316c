# SPDX-License-Identifier: Apache-2.0
"""`multibody-estimation track`: states and unexplained forces of a robot whose parameters are known."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ['command']


def command(
    robot: Annotated[str, typer.Argument(help='robot file (.yaml), or a robot of this package (furuta)')],
    recording: Annotated[Path, typer.Argument(help='a bag, or a .csv file with --columns')],
    fit: Annotated[Path, typer.Option(help='Result of `identify`.')],
    columns: Annotated[str, typer.Option('--columns', '--csv', help='mapping of the columns of .csv files (YAML)')] = '',
    weight: Annotated[float | None, typer.Option(help='Allowed acceleration error, rad/s^2; default that of the fit.')] = None,
    output: Annotated[Path | None, typer.Option(help='CSV file for the states; default RECORDING.states.csv.')] = None,
) -> None:
    """Estimate positions, speeds and external joint forces with standard deviations, and write them as CSV.

    Example: multibody-estimation track furuta rosbags/furuta_chirp --fit furuta.fit.yaml
    """
    import numpy as np

    from multibody_estimation.cli.opening import open_recording, open_robot
    from multibody_estimation.identification import Fit, dynamics, track

    opened = open_robot(robot)
    model = opened.robot
    window = open_recording(str(recording), opened, columns)
    states = track(Fit.load(fit, model), window, weight=weight)
    motion = states.motion
    names = dynamics.joint_names(model.model)
    pad = np.full((len(names), 1), np.nan)
    external, external_std = (np.hstack([pad, x, pad]) for x in (motion.external, motion.external_std))
    table, head = [motion.time], ['t']
    quantities = (('position', motion.positions, motion.positions_std), ('speed', motion.speeds, motion.speeds_std), ('external', external, external_std))  # fmt: skip
    for what, x, sd in quantities:
        for i, name in enumerate(names):
            head += [f'{name}.{what}', f'{name}.{what}.std']
            table += [x[i], sd[i]]
    path = output or Path(f'{recording.name}.states.csv')
    np.savetxt(path, np.array(table).T, delimiter=',', header=','.join(head), comments='', fmt='%.9g')
    for signal, ratio in states.noise_ratio.items():
        print(f'  {signal}: residuals are {ratio:.2f} of the stated noise.')
    for i, name in enumerate(names):
        print(f'  {name}: position ± {np.nanmedian(motion.positions_std[i]):.2g}, speed ± {np.nanmedian(motion.speeds_std[i]):.2g}, '
              f'external force at most {np.nanmax(np.abs(external[i])):.3g} ± {np.nanmedian(external_std[i]):.2g} (SI units)')  # fmt: skip
    print(f'  {states.sentence}\n  Saved: {path}.  Next: multibody-estimation predict {robot} {recording} --fit {fit}')
