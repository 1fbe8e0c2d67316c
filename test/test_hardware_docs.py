# SPDX-License-Identifier: Apache-2.0
"""The Python of the pages on devices and recordings runs as it stands there."""

import re
from pathlib import Path

import numpy as np
import pytest

from multibody_estimation.hardware.collect import collect

ROOT = Path(__file__).resolve().parents[1]


def run(page, folder, monkeypatch):
    """Execute the page's Python, block after block, in a folder that sees the repository's bags."""
    (folder / 'rosbags').symlink_to(ROOT / 'rosbags')
    monkeypatch.chdir(folder)
    names: dict = {'__name__': 'page'}
    for block in re.findall(r'```python\n(.*?)```', (ROOT / 'docs' / page).read_text(), re.DOTALL):
        exec(compile(block, page, 'exec'), names)
    return names


def test_the_page_on_devices_runs_and_its_device_works(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(__import__('sys').modules, 'page', pytest)  # dataclasses look their module up by name
    names = run('devices.md', tmp_path, monkeypatch)
    assert 'encoders' in capsys.readouterr().out and len(names['window']['encoders']) == 400
    played = collect(names['Metronome'](realtime=False), 1.0)
    assert len(played['encoders']) == 50 and np.ptp(played['encoders'].values) > 1.5


def test_the_page_on_recordings_runs(tmp_path, monkeypatch, capsys):
    run('recordings.md', tmp_path, monkeypatch)
    assert 'pendulum' in capsys.readouterr().out
