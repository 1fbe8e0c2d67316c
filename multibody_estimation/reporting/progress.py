# SPDX-License-Identifier: Apache-2.0
"""Progress in the terminal for whatever takes longer than two seconds: iterations and cost of a search, time left of many runs."""

import math
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from multibody_estimation.reporting.fit_search import Trace

__all__ = ['Progress', 'duration']

PATIENCE = 2.0
"""Seconds before anything is said."""


def duration(seconds: float) -> str:
    """A time span for people: 12 s, 3 min 20 s, 2 h 05 min."""
    s = max(round(seconds), 0)
    if s < 60:
        return f'{s} s'
    return f'{s // 60} min {s % 60:02d} s' if s < 3600 else f'{s // 3600} h {s % 3600 // 60:02d} min'


class Progress(Trace):
    """Context manager that tells how far something is, on stderr, and only where it takes long.

        with Progress('identifying') as progress:
            fit = identify(robot, window, progress=progress)
        fit.report('report.html', trace=progress)

    For many runs: ``Progress('study', total=50)``, and `done` after each. On a terminal one line is kept up to date and goes away at the
    end; elsewhere a line is written now and then. The time is watched by a thread, so that a long compilation is seen too.
    """

    def __init__(
        self,
        what: str,
        *,
        total: int = 0,
        patience: float = PATIENCE,
        every: float = 10.0,
        console: Console | None = None,
        then: Callable[[int, float, float], None] | None = None,
    ) -> None:
        super().__init__(then)
        self.what, self.total, self.patience, self.every = what, total, patience, every
        self.console = console or Console(file=sys.stderr)
        self.finished, self.last = 0, ''
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name='progress', daemon=True)
        self._began = 0.0

    def done(self, name: str = '') -> None:
        """One of the runs has ended."""
        self.finished, self.last = self.finished + 1, name

    @property
    def left(self) -> float:
        """Seconds that the remaining runs will take if they take as long as those before; nan while none has ended."""
        if not self.finished or not self.total:
            return math.nan
        return (time.monotonic() - self._began) / self.finished * (self.total - self.finished)

    def sentence(self) -> str:
        """How far it is."""
        parts = [f'{self.what}: {duration(time.monotonic() - self._began)}']
        if self.total:
            parts.append(f'{self.finished} of {self.total}' + (f' ({self.last})' if self.last else ''))
            left = self.left
            if math.isfinite(left):
                parts.append(f'about {duration(left)} left')
        if self.steps:
            iteration, cost, step = self.steps[-1]
            parts.append(f'iteration {iteration}, cost {cost:.6g}, largest step {step:.1e}')
        elif not self.total:
            parts.append('preparing')
        return ', '.join(parts)

    def _watch(self) -> None:
        if self._stop.wait(self.patience):
            return
        if not self.console.is_terminal:
            while True:
                self.console.print(self.sentence(), highlight=False, soft_wrap=True)
                if self._stop.wait(self.every):
                    return
        with Live(Text(self.sentence()), console=self.console, auto_refresh=False, transient=True) as live:
            while not self._stop.wait(0.2):
                live.update(Text(self.sentence(), no_wrap=True, overflow='ellipsis'), refresh=True)

    def __enter__(self) -> 'Progress':
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(2.0)
