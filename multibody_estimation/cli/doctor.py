# SPDX-License-Identifier: Apache-2.0
"""`multibody-estimation doctor`: is my installation right?"""

import typer

__all__ = ['command']


def command() -> None:
    """Say what is installed and working; every line that is wrong ends with the command that repairs it.

    Example: multibody-estimation doctor
    """
    from multibody_estimation.cli.diagnosis import examine

    findings = examine()
    for finding in findings:
        mark = 'ok' if finding.good else ('--' if finding.optional else 'NO')
        typer.echo(f'{mark}  {finding.what:<22} {finding.found}')
        if not finding.good:
            typer.echo(f'{"":<26} repair: {finding.remedy}')
    if not all(f.good or f.optional for f in findings):
        raise typer.Exit(1)
