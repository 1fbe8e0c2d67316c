# SPDX-License-Identifier: Apache-2.0
"""`run_study`: all runs of a study that are not done yet, wherever there is a free worker; then one table and one report."""

import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multibody_estimation.errors import EstimationError
from multibody_estimation.reporting.progress import Progress
from multibody_estimation.reporting.writing import check_writable
from multibody_estimation.studies.cluster import connect
from multibody_estimation.studies.journal import Journal
from multibody_estimation.studies.plan import Study, read_study
from multibody_estimation.studies.results import check_parquet, write_parquet
from multibody_estimation.studies.run import do_run, failed

__all__ = ['Outcome', 'run_study']

JOURNAL, TABLE, REPORT = 'runs.jsonl', 'results.parquet', 'report.html'


@dataclass(frozen=True)
class Outcome:
    """What a study gave; prints as a sentence."""

    rows: tuple[dict[str, Any], ...]
    """One for each run, in the order of the study."""
    skipped: int
    """How many were there already."""
    table: Path
    report: Path

    def count(self, status: str) -> int:
        """Runs that ended ``ok``, ``not converged`` or ``failed``."""
        return sum(row['status'] == status for row in self.rows)

    def __str__(self) -> str:
        parts = [f'{self.count("ok")} of {len(self.rows)} runs converged']
        parts += [f'{n} {status}' for status in ('not converged', 'failed') if (n := self.count(status))]
        parts += [f'{self.skipped} were there already'] if self.skipped else []
        lines = [f'{", ".join(parts)}.']
        bad = [row for row in self.rows if row['status'] == 'failed']
        lines += [f'  failed: {Path(row["recording"]).name} {row["settings"]}: {row["why"]}' for row in bad[:10]]
        lines += [f'  and {len(bad) - 10} more, see the report.'] if len(bad) > 10 else []
        return '\n'.join(lines)


def run_study(
    study: Study | str | Path,
    *,
    output: str | Path | None = None,
    scheduler: str = '',
    workers: int = 2,
    again: bool = False,
) -> Outcome:
    """Do what is left of a study.

    scheduler: address of a Dask scheduler; default: an embedded cluster of ``workers`` processes. again: repeat the runs that failed.
    A script that calls this needs ``if __name__ == '__main__':``, as the workers import it.
    """
    check_parquet()
    if workers < 1 or workers > 10 * (os.cpu_count() or 1):
        raise EstimationError(f'{workers} workers are not possible on this machine; it has {os.cpu_count()} processors.')
    study = study if isinstance(study, Study) else read_study(study)
    folder = study.output if output is None else Path(output)
    for name in (JOURNAL, TABLE, REPORT):
        check_writable(folder / name)
    from multibody_estimation.reporting.study import study_report

    with Journal(folder / JOURNAL) as journal:
        had = {k for k, row in journal.rows.items() if not (again and row['status'] == 'failed')}
        todo = [run for run in study.runs if run.key not in had]
        if todo:
            _work(todo, journal, scheduler, workers)
        rows = tuple(journal.rows[run.key] for run in study.runs)
    table = write_parquet(rows, folder / TABLE)
    report = study_report(rows, title=f'Study {study.path.stem}').save(folder / REPORT)
    return Outcome(rows, len(study.runs) - len(todo), table, report)


def _work(todo: list[Any], journal: Journal, scheduler: str, workers: int) -> None:
    """Do the runs; each row is on the disk before the next is looked at."""
    with connect(scheduler, workers) as client, Progress('study', total=len(todo)) as progress:
        from distributed import as_completed

        # Keys of their own: a scheduler that lives on must not answer with what an earlier study left there.
        session = uuid.uuid4().hex[:8]
        futures = {client.submit(do_run, run, key=f'study-{session}-{run.key}', pure=False): run for run in todo}
        left = len(todo)
        for future in as_completed(list(futures)):
            run = futures.pop(future)
            journal.add(_row(future, run, client, left))
            left -= 1
            progress.done(run.label)
            future.release()


def _row(future: Any, run: Any, client: Any, left: int) -> dict[str, Any]:
    """The row of a run that has ended; a lost scheduler ends the study, and the same command goes on later."""
    from distributed import CancelledError, KilledWorker
    from distributed.comm.core import CommClosedError

    try:
        return future.result()
    except KilledWorker:
        return failed(run, 'Its worker process died several times over this run, e.g. for want of memory.')
    except (CancelledError, CommClosedError, OSError):
        raise EstimationError(
            f'The Dask scheduler was lost with {left} runs to do. What is done is kept: the same command goes on from there.'
        ) from None
    except Exception as error:  # e.g. a result that cannot be sent
        if client.status != 'running':
            raise EstimationError(
                f'The Dask scheduler was lost with {left} runs to do. What is done is kept: the same command goes on from there.'
            ) from None
        return failed(run, f'{type(error).__name__}: {error}'.splitlines()[0])
