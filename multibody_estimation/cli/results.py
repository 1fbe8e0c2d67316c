# SPDX-License-Identifier: Apache-2.0
"""What an identification leaves behind: the fit, the report, and where the robot came from a URDF, the identified URDF."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from multibody_estimation.cli.opening import Opened
from multibody_estimation.errors import EstimationError

__all__ = ['save_results']


def save_results(fit: Any, opened: Opened, recording: str, folder: str = '.', report: bool = True) -> list[Path]:
    """Write ``<name>.fit.yaml``, ``report.html`` and ``<name>.identified.urdf``; returns what was written."""
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
        written = [place / f'{opened.stem}.fit.yaml']
        fit.save(written[0])
    except OSError as error:
        raise EstimationError(f'{place} cannot be written: {error.strerror}. Choose another folder with --output.') from None
    if report:
        written.append(fit.report(place / 'report.html'))
    if opened.urdf is not None:
        from multibody_estimation.robots.possible import make_possible
        from multibody_estimation.robots.urdf_writer import write_urdf

        model, said = make_possible(fit.robot.model, fit.names)
        for sentence in said:
            print(f'  {sentence}')
        day = datetime.now(UTC).strftime('%Y-%m-%d')
        origin = f'from {Path(recording).name} on {day}, start {opened.urdf.name}, numbers with deviations in {written[0].name}'
        written.append(write_urdf(model, opened.urdf, place / f'{opened.stem}.identified.urdf', origin=origin))
    return written
