# SPDX-License-Identifier: Apache-2.0
"""`multibody-estimation study`: identify over many recordings, method parameters and starts."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ['command']


def command(
    study: Annotated[Path, typer.Argument(metavar='STUDY', help='study file (YAML): robot, recordings, weight, step, starts')],
    output: Annotated[
        Path | None, typer.Option(help='folder for the results; default: `output:` of the study file, or its name with _results')
    ] = None,
    scheduler: Annotated[str, typer.Option(metavar='ADDRESS', help='an existing Dask scheduler, e.g. tcp://127.0.0.1:8786')] = '',
    workers: Annotated[int, typer.Option(help='processes of the embedded cluster')] = 2,
    again: Annotated[bool, typer.Option('--again', help='repeat the runs that failed')] = False,
) -> None:
    """Run identify over recordings x settings x starts on several processes; writes results.parquet and report.html.

    It can be interrupted: the same command goes on where it was. A run that fails is a row that says why.

    Example: multibody-estimation study examples/study.yaml --output results/study
    """
    from multibody_estimation.studies import run_study

    outcome = run_study(study, output=output, scheduler=scheduler, workers=workers, again=again)
    print(outcome)
    print(f'  Written: {outcome.table}, {outcome.report}')
    if outcome.count('failed'):
        print(f'Next: repair what failed, then multibody-estimation study {study} --again')
        raise typer.Exit(2)
    print(f'Next: open {outcome.report}')
