# SPDX-License-Identifier: Apache-2.0
"""The command line `multibody-estimation`: one verb per file of this folder, the same work as in Python, without a ROS graph.

A verb's module defines `command` and imports what it needs inside it, so that `--help` answers at once.
"""

import os
import sys
from importlib import import_module

import typer

from multibody_estimation.errors import EstimationError

__all__ = ['VERBS', 'main']

VERBS = {
    'calibrate-ft': 'calibrate_ft',
    'centroidal': 'centroidal',
    'check': 'check',
    'demo': 'demo',
    'doctor': 'doctor',
    'identify': 'identify',
    'predict': 'predict',
    'track': 'track',
    'study': 'study',
    'up': 'up',
    'watch': 'watch',
    'wrench': 'wrench',
}
"""Verb to the module of this folder that defines it."""


def application() -> typer.Typer:
    """Put the verbs together."""
    app = typer.Typer(
        name='multibody-estimation',
        help='What a robot is and what it feels: parameters, states and wrenches, with honest uncertainty.',
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={'help_option_names': ['-h', '--help']},
    )

    @app.callback()
    def everywhere() -> None:  # with it, a lone verb is still a verb
        pass

    for verb, module in VERBS.items():
        app.command(verb)(import_module(f'{__name__}.{module}').command)
    return app


def main() -> None:
    """Run a verb; what a user can repair ends with one sentence and exit code 1, never with a traceback."""
    try:
        application()()
    except EstimationError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print('Interrupted.', file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        os._exit(1)
