# SPDX-License-Identifier: Apache-2.0
"""The nodes of a system as processes of their own, without launch: started together, ended together."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from multibody_estimation.nodes.bringup import NodeSpec, resolve
from multibody_estimation.nodes.start import prepare_environment

__all__ = ['Processes', 'command_line']


def command_line(spec: NodeSpec) -> list[str]:
    """The command that starts a node with its parameters."""
    line = [sys.executable, '-m', 'multibody_estimation.nodes', spec.executable, '--ros-args', '-r', f'__node:={spec.executable}']
    if spec.namespace:
        line += ['-r', f'__ns:=/{spec.namespace.strip("/")}']
    for file in spec.files:
        line += ['--params-file', file]
    for name, value in spec.parameters.items():
        line += ['-p', f'{name}:={json.dumps(value)}']
    return line


class Processes:
    """Context manager: the nodes of a system run inside it; leaving it ends them all."""

    def __init__(self, system: str, given: Mapping[str, str], *, output: Any = None, **environment: str) -> None:
        self.specs = resolve(system, given)
        self.output = output
        self.environment = dict(os.environ) | environment
        prepare_environment(self.environment)
        self.running: dict[str, subprocess.Popen] = {}

    @property
    def names(self) -> list[str]:
        """Names of the nodes."""
        return [spec.executable for spec in self.specs]

    def __enter__(self) -> 'Processes':
        for spec in self.specs:
            # A session of its own, so that Ctrl-C reaches this process first and the nodes are ended in order.
            self.running[spec.executable] = subprocess.Popen(
                command_line(spec),
                env=self.environment,
                stdout=self.output,
                stderr=subprocess.STDOUT if self.output else None,
                start_new_session=True,
            )
        return self

    def failed(self) -> str:
        """Name of a node that ended by itself, or an empty text."""
        return next((name for name, p in self.running.items() if p.poll() is not None), '')

    def wait(self, seconds: float | None = None) -> int:
        """Wait until time is up (0), a node ends by itself (its exit code, at least 1), or Ctrl-C (0)."""
        end = time.monotonic() + seconds if seconds else None
        try:
            while end is None or time.monotonic() < end:
                name = self.failed()
                if name:
                    print(f'The {name} ended; so do the others.', file=sys.stderr)
                    return self.running[name].returncode or 1
                time.sleep(0.1)
        except KeyboardInterrupt:
            pass
        return 0

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for process in reversed(self.running.values()):
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        end = time.monotonic() + 8
        for process in self.running.values():
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)
