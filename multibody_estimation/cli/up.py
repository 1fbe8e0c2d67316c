# SPDX-License-Identifier: Apache-2.0
"""`multibody-estimation up SYSTEM`: what `ros2 launch` does, without launch."""

from typing import Annotated

import typer

__all__ = ['command']


def command(
    system: Annotated[str, typer.Argument(help='furuta, replay, icub or calibration')],
    arguments: Annotated[list[str] | None, typer.Argument(help='name:=value, as for ros2 launch')] = None,
    show: Annotated[bool, typer.Option('--show-args', help='list the arguments and end')] = False,
    seconds: Annotated[float, typer.Option(help='end after so many seconds; 0 runs until interrupted')] = 0.0,
) -> None:
    """Bring up a live system as processes of its own: the nodes of the launch file of the same name, from the same table.

    Example: multibody-estimation up furuta device:=simulated excitation:=sines
    """
    from multibody_estimation.errors import EstimationError, did_you_mean
    from multibody_estimation.nodes.bringup import SYSTEMS
    from multibody_estimation.nodes.processes import Processes
    from multibody_estimation.nodes.start import check_ros

    if system not in SYSTEMS:
        raise EstimationError(f"There is no system '{system}'.{did_you_mean(system, SYSTEMS)}")
    if show:
        for a in SYSTEMS[system].arguments:
            choices = f' One of {", ".join(a.choices)}.' if a.choices else ''
            typer.echo(f'{a.name}:={a.default or "(empty)"}\n    {a.meaning}{choices}')
        return
    missing = check_ros('nodes of this system')
    if missing:
        raise EstimationError(missing.replace('needs', 'need', 1))
    given = {}
    for argument in arguments or []:
        name, separator, value = argument.partition(':=')
        if not separator:
            raise EstimationError(f"'{argument}' is no argument; write name:=value.")
        given[name] = value
    with Processes(system, given) as processes:
        typer.echo(f'{system}: {", ".join(processes.names)} up. Ctrl-C ends it.')
        code = processes.wait(seconds or None)
    if code:
        raise typer.Exit(code)
