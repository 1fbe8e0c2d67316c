# SPDX-License-Identifier: Apache-2.0
"""What an identification leaves behind: the fit, the report, and where the robot came from a URDF, the identified URDF."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from multibody_estimation.cli.opening import Opened
from multibody_estimation.errors import EstimationError

__all__ = ['save_results']


def save_results(fit: Any, opened: Opened, recording: str | Path, output: Path | None = None) -> list[Path]:
    """Write ``<name>.fit.yaml``, ``report.html`` and ``<name>.identified.urdf``; returns what was written.

    output: a folder, or the name of the fit (.yaml); the others go beside it.
    """
    named = output is not None and output.suffix in ('.yaml', '.yml')
    place = Path('.') if output is None else output.parent if named else output
    try:
        place.mkdir(parents=True, exist_ok=True)
        written = [output if named and output is not None else place / f'{opened.stem}.fit.yaml']
        fit.save(written[0])
    except OSError as error:
        raise EstimationError(f'{place} cannot be written: {error.strerror}. Choose another folder with --output.') from None
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
