# SPDX-License-Identifier: Apache-2.0
"""Where the runs are done: two processes of this machine by default, or an existing Dask scheduler."""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from multibody_estimation.errors import EstimationError
from multibody_estimation.studies.run import installed_version

__all__ = ['connect']

PATIENCE = 30.0
"""Seconds to wait for a scheduler and for its first worker."""


@contextlib.contextmanager
def connect(scheduler: str = '', workers: int = 2) -> Iterator[Any]:
    """A Dask client; the embedded cluster listens on 127.0.0.1 only and has no dashboard."""
    try:
        import distributed
    except ImportError as error:
        raise EstimationError(f"A study needs Dask ({error}). Install it: pip install 'multibody_estimation[study]'.") from None
    logging.getLogger('distributed').setLevel(logging.CRITICAL)  # a lost worker is said in a row, not in a traceback
    with contextlib.ExitStack() as stack:
        if not scheduler:
            cluster = stack.enter_context(
                distributed.LocalCluster(
                    n_workers=workers, threads_per_worker=1, processes=True, host='127.0.0.1', dashboard_address=None,
                    silence_logs=logging.CRITICAL,
                )
            )  # fmt: skip
            yield stack.enter_context(distributed.Client(cluster))
            return
        try:
            client = stack.enter_context(distributed.Client(scheduler, timeout=PATIENCE))
        except (OSError, ValueError, TypeError) as error:
            why = str(error).split('\n')[0]
            raise EstimationError(f"There is no Dask scheduler at '{scheduler}' ({why}). Start one: dask scheduler") from None
        try:
            client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            raise EstimationError(f'The scheduler {scheduler} has no worker. Start some: dask worker {scheduler}') from None
        _check_workers(client, scheduler)
        yield client


def _check_workers(client: Any, scheduler: str) -> None:
    """Every worker must have this package, in this version."""
    ours = installed_version()
    try:
        found = client.run(installed_version)
    except Exception as error:  # whatever the import raised over there
        raise EstimationError(
            f'A worker of {scheduler} cannot import multibody_estimation ({str(error).splitlines()[0]}). Install it there.'
        ) from None
    for worker, version in found.items():
        if version != ours:
            raise EstimationError(f'The worker {worker} has version {version} of multibody_estimation, here it is {ours}.')
