# SPDX-License-Identifier: Apache-2.0
"""One thread for the solver: the executor never waits for it, work never stacks, what is skipped is counted."""

import threading
import time
from collections.abc import Callable
from typing import Any

__all__ = ['Worker']


class Worker:
    """Runs one job at a time in a thread of its own.

    `offer` takes a job only while nothing runs: a timer that finds the worker busy skips its turn, as fuse's smoothers do.
    """

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        """failed: called in the worker's thread with whatever a job raises."""
        self._failed = failed
        self._wake = threading.Condition()
        self._job: Callable[[], Any] | None = None
        self._open = True
        self.skipped = 0
        """Offers that found the worker busy."""
        self.seconds = 0.0
        """How long the last job took."""
        self._thread = threading.Thread(target=self._work, name='solver', daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether a job runs or waits."""
        return self._job is not None

    def offer(self, job: Callable[[], Any]) -> bool:
        """Take a job; False, and one more skipped, while another one runs."""
        with self._wake:
            if self._job is not None or not self._open:
                self.skipped += 1
                return False
            self._job = job
            self._wake.notify()
            return True

    def _work(self) -> None:
        while True:
            with self._wake:
                while self._job is None and self._open:
                    self._wake.wait()
                job = self._job
            if job is None:
                return
            begin = time.perf_counter()
            try:
                job()
            except Exception as error:
                self._failed(error)
            finally:
                self.seconds = time.perf_counter() - begin
                with self._wake:
                    self._job = None

    def close(self, timeout: float = 5.0) -> None:
        """Take no more jobs; wait for the one that runs."""
        with self._wake:
            self._open = False
            self._wake.notify()
        self._thread.join(timeout)
