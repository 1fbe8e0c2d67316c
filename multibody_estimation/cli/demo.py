# SPDX-License-Identifier: Apache-2.0
"""`multibody-estimation demo`: the main job from end to end, as `make demo` runs it."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ['command']


def command(
    folder: Annotated[Path, typer.Option(help='where the recording, the fit and the report are written')] = Path('results'),
) -> None:
    """Drive, record and identify a simulated Furuta pendulum over ROS 2; ends with 0 only if the estimate is right.

    Example: multibody-estimation demo --folder results
    """
    from multibody_estimation.errors import EstimationError
    from multibody_estimation.nodes.start import check_ros

    missing = check_ros('demo')
    if missing:
        raise EstimationError(missing)
    from multibody_estimation.nodes.demo import demo

    raise typer.Exit(demo(folder))
