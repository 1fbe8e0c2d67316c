# SPDX-License-Identifier: Apache-2.0
"""Studies: nothing lost and nothing twice when a worker is killed, resumable, failures are rows, bad input is said at once."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip('distributed', reason="Dask is not installed: pip install '.[study]'")
pq = pytest.importorskip('pyarrow.parquet', reason="pyarrow is not installed: pip install '.[study]'")

from multibody_estimation.errors import EstimationError  # noqa: E402
from multibody_estimation.studies import read_study  # noqa: E402
from multibody_estimation.studies.journal import Journal  # noqa: E402
from multibody_estimation.studies.run import do_run  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
BAG = ROOT / 'rosbags' / 'furuta_chirp'


def write(folder: Path, **changes) -> Path:
    import yaml

    content = {'robot': 'furuta', 'recordings': [str(BAG)], 'end': '1 s', 'weight': [0.01], 'step': ['10 ms']} | changes
    path = folder / 'study.yaml'
    path.write_text(yaml.safe_dump(content))
    return path


def command(path: Path, *more: str, **options) -> subprocess.Popen:
    environment = dict(os.environ) | {'PYTHONPATH': str(ROOT)}
    return subprocess.Popen([sys.executable, '-m', 'multibody_estimation.cli', 'study', str(path), *more], cwd=path.parent,
                            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)  # fmt: skip


def journal(path: Path) -> list[dict]:
    text = path.read_text() if path.exists() else ''
    return [json.loads(line) for line in text[: text.rfind('\n') + 1].splitlines()]


def test_a_killed_worker_costs_no_result_and_doubles_none(tmp_path):
    weights = [round(0.001 * 1.2**k, 6) for k in range(60)]
    path = write(tmp_path, weight=weights)
    runs, rows = tmp_path / 'out' / 'runs.jsonl', []
    environment = dict(os.environ) | {'PYTHONPATH': str(ROOT)}
    started = []

    def dask(what: str, *arguments: str) -> subprocess.Popen:
        process = subprocess.Popen([sys.executable, '-m', f'distributed.cli.dask_{what}', *arguments], cwd=tmp_path, env=environment,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        started.append(process)
        return process

    try:
        file = tmp_path / 'scheduler.json'
        dask('scheduler', '--host', '127.0.0.1', '--port', '0', '--no-dashboard', '--scheduler-file', str(file))
        end = time.monotonic() + 60
        while not file.exists() and time.monotonic() < end:
            time.sleep(0.1)
        address = json.loads(file.read_text())['address']
        workers = [dask('worker', address, '--no-nanny', '--nthreads', '1', '--no-dashboard') for _ in range(2)]
        import distributed

        with distributed.Client(address, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
        study = command(path, '--output', str(tmp_path / 'out'), '--scheduler', address)
        end, victim = time.monotonic() + 120, None
        while victim is None and time.monotonic() < end and study.poll() is None:
            rows = journal(runs)
            victim = next((w for w in workers if any(r['process'] == w.pid for r in rows)), None)
            time.sleep(0.005)
        assert victim is not None, study.communicate()
        victim.send_signal(signal.SIGKILL)
        victim.wait(10)
        at_kill = len(journal(runs))
        assert 0 < at_kill < len(weights), 'the kill came too late to show anything'
        out, err = study.communicate(timeout=120)
        assert study.returncode == 0, out + err
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
            process.wait(10)
    rows = journal(runs)
    keys = [r['key'] for r in rows]
    assert len(keys) == len(set(keys)) == len(weights)
    assert set(keys) == {run.key for run in read_study(path).runs}
    # On one second of data the stiffest weights stop at the limit of iterations, killed worker or not; that is a result too.
    assert 'failed' not in {r['status'] for r in rows}
    assert any(r['process'] == victim.pid for r in rows) and rows[-1]['process'] != victim.pid
    table = pq.read_table(tmp_path / 'out' / 'results.parquet').to_pydict()
    assert table['key'] == [run.key for run in read_study(path).runs] and table['weight'] == weights
    # The numbers are those of one identification in this process.
    again = do_run(read_study(path).runs[30])
    assert table['arm_link.inertia.zz'][30] == pytest.approx(again['parameters']['arm_link.inertia.zz']['value'], rel=1e-6)


def test_a_bad_bag_is_a_row_and_a_second_run_skips_what_is_there(tmp_path):
    bad = tmp_path / 'broken.mcap'
    bad.write_bytes(b'no bag at all')
    path = write(tmp_path, recordings=[str(bad), str(BAG)])
    first = command(path)
    out, err = first.communicate(timeout=120)
    assert first.returncode == 2 and 'broken.mcap' in out and '1 of 2 runs converged' in out, out + err
    before = (tmp_path / 'study_results' / 'runs.jsonl').read_bytes()
    second = command(path)
    out, err = second.communicate(timeout=120)
    assert '2 were there already' in out, out + err
    assert (tmp_path / 'study_results' / 'runs.jsonl').read_bytes() == before
    assert 'broken.mcap' in (tmp_path / 'study_results' / 'report.html').read_text()


def test_unknown_keys_and_missing_bags_are_named_with_their_line(tmp_path):
    with pytest.raises(EstimationError, match=r"line \d+: 'wieght' is no key.*Did you mean 'weight'"):
        read_study(write(tmp_path, wieght=[1.0]))
    bags = [str(BAG)] * 49 + ['gone_37']
    with pytest.raises(EstimationError, match='1 of 50 recordings is not there: gone_37'):
        read_study(write(tmp_path, recordings=bags))
    with pytest.raises(EstimationError, match="Did you mean 'arm.damping'"):
        read_study(write(tmp_path, starts={'a': {'arm.dampin': 1e-3}}))
    with pytest.raises(EstimationError, match='weight -1 must be above zero'):
        read_study(write(tmp_path, weight=[-1.0]))


def test_an_output_that_cannot_be_a_folder_is_named_before_anything_runs(tmp_path):
    (tmp_path / 'file').write_text('')
    process = command(write(tmp_path), '--output', str(tmp_path / 'file' / 'out'))
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1 and str(tmp_path / 'file' / 'out') in err and 'Traceback' not in err


def test_a_disk_that_is_full_midway_leaves_whole_rows(tmp_path):
    path = tmp_path / 'runs.jsonl'
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Journal(path) as kept:
        kept.add({'key': 'a', 'text': 'x' * 50})
        whole = path.read_bytes()
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 20, hard))
        try:
            with pytest.raises(EstimationError, match=r'runs\.jsonl cannot be written'):
                kept.add({'key': 'b', 'text': 'x' * 50})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == whole


def test_a_line_that_a_crash_cut_off_is_done_again_and_two_writers_are_refused(tmp_path):
    path = tmp_path / 'runs.jsonl'
    path.write_text('{"key": "a"}\n{"key": "b", "val')
    with Journal(path) as kept:
        assert set(kept.rows) == {'a'}
        with pytest.raises(EstimationError, match='another study is writing it'), Journal(path):
            pass
        kept.add({'key': 'b'})
    assert path.read_text() == '{"key": "a"}\n{"key": "b"}\n'
