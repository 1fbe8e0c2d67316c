# SPDX-License-Identifier: Apache-2.0
"""`multibody-estimation watch`: rates, states, parameters and what the nodes say, live in the terminal."""

from typing import Annotated

import typer

__all__ = ['command']


def command(
    topics: Annotated[list[str] | None, typer.Argument(help='only these topics; all where none is given')] = None,
    seconds: Annotated[float, typer.Option(help='end after so many seconds; 0 runs until interrupted')] = 0.0,
    period: Annotated[float, typer.Option(help='seconds between two pictures')] = 0.5,
) -> None:
    """Show a running system: every topic with its rate, the newest states, wrenches and parameters, the diagnostics.

    Where the output is no terminal, only the last picture is printed, after --seconds (3 by default).

    Example: multibody-estimation watch --seconds 5
    """
    import time

    from rich.console import Console
    from rich.live import Live

    from multibody_estimation.errors import EstimationError
    from multibody_estimation.nodes.start import check_ros
    from multibody_estimation.reporting.live import draw

    if seconds < 0 or not period > 0:
        raise EstimationError(f'--seconds {seconds:g} must not be negative, and --period {period:g} must be above zero.')
    missing = check_ros('watch')
    if missing:
        raise EstimationError(missing)
    from multibody_estimation.nodes.client import Client
    from multibody_estimation.nodes.watching import Watcher

    console = Console()
    with Client('watch') as client:
        watcher = Watcher(client.node, topics or ())
        if not console.is_terminal:
            end = time.monotonic() + (seconds or 3.0)
            while time.monotonic() < end:
                watcher.look_around()
                time.sleep(min(period, max(end - time.monotonic(), 0.0)))
            console.print(draw(watcher.snapshot()))
            return
        end = time.monotonic() + seconds if seconds else float('inf')
        with Live(draw(watcher.snapshot()), console=console, auto_refresh=False, screen=not seconds) as live:
            try:
                while time.monotonic() < end:
                    time.sleep(period)
                    live.update(draw(watcher.snapshot()), refresh=True)
            except KeyboardInterrupt:
                return
