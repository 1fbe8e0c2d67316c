# SPDX-License-Identifier: Apache-2.0
"""The parts of a report: numbers survive the way to the browser, noise is told from what is not noise, files are whole or not there."""

import base64
import io
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from rich.console import Console

from multibody_estimation import tree
from multibody_estimation.errors import EstimationError
from multibody_estimation.reporting.figures import Series, encode, lines, matrix, thin
from multibody_estimation.reporting.fit_search import Trace
from multibody_estimation.reporting.mechanism import animation, skeleton
from multibody_estimation.reporting.page import Finding, Report, Section, Verdict, number, table
from multibody_estimation.reporting.progress import Progress, duration
from multibody_estimation.reporting.residuals import Channel, autocorrelation, channel_figures, whiteness
from multibody_estimation.reporting.writing import check_writable, write_file


def decoded(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype='<f4')


def data_of(html: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="figures">(.*?)</script>', html, re.S)[1])


def test_numbers_arrive_as_they_were_sent():
    x = np.array([0.0, -1.5e-7, 3e8, np.nan, np.inf])
    np.testing.assert_allclose(decoded(encode(x))[:3], x[:3], rtol=1e-6)
    assert np.isnan(decoded(encode(x))[3:]).all()


def test_thinning_keeps_every_peak_and_every_gap():
    rng = np.random.default_rng(0)
    t, y = np.arange(100_000.0), rng.normal(size=100_000)
    y[41_234], y[77_777], y[50_000:50_100] = 99.0, -99.0, np.nan
    x, z = thin(t, y, most=2000)
    assert len(x) <= 3002 and (np.diff(x) > 0).all()
    assert np.nanmax(z) == 99.0 and np.nanmin(z) == -99.0
    assert np.isnan(z[(x >= 50_000) & (x < 50_100)]).any()
    for value, at in zip(z, x):
        np.testing.assert_equal(value, y[int(at)])


def test_autocorrelation_is_that_of_the_definition_with_samples_missing():
    rng = np.random.default_rng(1)
    r = np.convolve(rng.normal(size=400), [1, 0.6, 0.2])[:400]
    r[rng.random(400) < 0.1] = np.nan
    x = r - np.nanmean(r)
    slow = [np.nanmean(x[k:] * x[: len(x) - k]) / np.nanmean(x**2) for k in range(1, 11)]
    np.testing.assert_allclose(autocorrelation(r, 10), slow, atol=1e-10)


def test_white_noise_passes_and_colored_noise_does_not():
    rng = np.random.default_rng(2)
    passed = [whiteness(rng.normal(size=1500)) for _ in range(40)]
    assert all(w.white for w in passed)
    assert 0.02 < np.mean([w.outside / len(w.lags) for w in passed]) < 0.08
    colored = np.convolve(rng.normal(size=1500), [1, 0.8, 0.4], mode='same')
    assert not whiteness(colored).white
    slow = rng.normal(size=1500) + 0.6 * np.sin(np.arange(1500) / 40)
    assert not whiteness(slow).white


def test_recordings_are_not_compared_across_their_seam():
    rng = np.random.default_rng(3)
    levels = np.repeat([3.0, -3.0] * 20, 20)
    r = levels + rng.normal(size=800)
    nothing = np.zeros(800)
    channel = Channel('x', 'rad', np.arange(800.0), nothing, nothing, r, 1.0, None, tuple(range(20, 800, 20)))
    c = channel.whiteness().correlation
    pairs = [np.mean([a * b for part in np.split(r - r.mean(), 40) for a, b in zip(part[k:], part)]) for k in (1, 5)]
    np.testing.assert_allclose(c[[0, 4]], np.array(pairs) / np.mean((r - r.mean()) ** 2), rtol=1e-9)


def test_a_sensor_slower_than_the_stages_is_judged_and_drawn_at_its_own_rate():
    rng = np.random.default_rng(4)
    slow = np.convolve(rng.normal(size=400), [1, 0.7])[:400]
    r = np.full(1200, np.nan)
    r[1::3] = slow
    t = np.arange(1200) * 0.005
    t[600:] += 1.0
    channel = Channel('x', 'rad', t, r, r, r, 1.0)
    np.testing.assert_allclose(channel.whiteness().correlation, autocorrelation(slow, 50), atol=1e-12)
    line = next(s for s in channel_figures(channel)[0][0].spec['series'] if s['name'] == 'estimate')
    y = decoded(line['y'])
    assert len(y) == 401 and np.isnan(y).sum() == 1  # all readings, and one break at the pause
    assert (np.diff(decoded(line['x'])) >= 0).all()


def test_a_skeleton_has_its_joints_where_geometry_puts_them():
    """Arm of 0.2 m about the vertical, rod of 2 x 0.15 m about the arm's axis: written out by hand."""
    links = [
        tree.Link('base'),
        tree.Link('arm_link', 0.2, (0, 0, 0), (2e-3,) * 3),
        tree.Link('rod', 0.1, (0, 0, -0.15), (7e-4, 7e-4, 4e-6)),
    ]
    joints = [
        tree.Joint('arm', 'base', 'arm_link'),
        tree.Joint('pendulum', 'arm_link', 'rod', axis=(1, 0, 0), position=(0.2, 0, 0)),
    ]
    model = tree.build(links, joints, name='furuta')
    theta, phi = np.array([0.0, 0.7, -2.0]), np.array([0.0, 0.5, 3.0])
    nodes, drawn = skeleton(model, np.stack([theta, phi]))
    pivot = 0.2 * np.stack([np.cos(theta), np.sin(theta), 0 * theta], axis=1)
    across = np.stack([-np.sin(theta), np.cos(theta), 0 * theta], axis=1)
    tip = pivot + 0.3 * (np.sin(phi)[:, None] * across - np.cos(phi)[:, None] * [0, 0, 1])
    ends = {line['link']: line['path'] for line in drawn}
    np.testing.assert_allclose(nodes[:, ends['arm_link'][1]], pivot, atol=1e-12)
    np.testing.assert_allclose(nodes[:, ends['rod'][0]], pivot, atol=1e-12)
    np.testing.assert_allclose(nodes[:, ends['rod'][1]], tip, atol=1e-12)


def test_an_animation_is_thinned_and_hand_written_equations_have_none():
    model = tree.build(
        [tree.Link('base'), tree.Link('rod', 1.0, (0, 0, -0.5), (0.1, 0.1, 0.01))],
        [tree.Joint('hinge', 'base', 'rod', axis=(1, 0, 0))],
    )
    t = np.linspace(0, 60, 6001)
    figure = animation(model, t, {'measured': np.sin(t)[None], 'predicted': np.cos(t)[None]})
    frames = len(decoded(figure.spec['time']))
    assert frames == 300 and len(figure.spec['panes']) == 2
    tip = decoded(figure.spec['panes'][1]['nodes']).reshape(frames, -1, 3)[0, -1]
    np.testing.assert_allclose(tip, [0, np.sin(1.0), -np.cos(1.0)], atol=1e-6)
    assert animation(object(), t, {'measured': np.sin(t)[None]}) is None


def test_a_trace_counts_on_through_the_solves_of_a_search():
    heard = []
    trace = Trace(lambda *step: heard.append(step))
    for step in [(1, 9.0, 1.0), (2, 4.0, 0.5), (4, 3.0, 0.1), (1, 2.5, 0.2), (1, 2.0, 0.1), (2, 1.9, 0.0)]:
        trace(*step)
    assert [list(s[:, 0]) for s in trace.solves] == [[1, 2, 4], [5], [6, 7]]
    assert len(heard) == 6


@pytest.mark.parametrize(('value', 'text'), [(1234567.0, '1.235e6'), (-0.00012, '−0.00012'), (None, '–'), (float('nan'), '–'), (float('-inf'), '−∞'), (2.0, '2')])  # fmt: skip
def test_numbers_for_people(value, text):
    assert number(value) == text


def hostile() -> Report:
    bad = '</script><img src=x onerror="document.title=1">'
    figure = lines(bad, [Series(bad, [0, 1], [1, 2])], x=bad, y=bad, caption=bad)
    cells = table([bad, bad], [[bad, bad]])
    return Report(
        bad,
        bad,
        Verdict(bad, (Finding('look', bad),)),
        (Section(bad, (cells, figure, matrix(bad, np.eye(2), [bad, 'b'], ['1', '2']))),),
    )


def test_names_from_outside_stay_text():
    html = hostile().html
    assert '<img' not in html
    assert html.count('</script>') == 3
    assert data_of(html)['f0']['series'][0]['name'].startswith('</script><img')


def test_a_page_refers_to_nothing_outside_itself():
    html = hostile().html
    assert not re.search(r'https?://(?!www\.w3\.org)|@import|url\((?!#)', html.replace('url(#${clip})', ''))
    assert set(re.findall(r'(?:src|href)="([^"#]*)', html)) <= {'data:,', ''}


def test_the_worst_finding_is_the_level_of_a_verdict():
    assert Verdict('x', (Finding('good', ''), Finding('look', ''))).level == 'look'
    assert Verdict('x', (Finding('bad', ''), Finding('look', ''))).level == 'bad'
    assert Verdict('x').level == ''


def test_a_folder_in_the_place_of_a_file_is_said_with_its_name(tmp_path):
    with pytest.raises(EstimationError, match=re.escape(str(tmp_path))):
        write_file(tmp_path, 'x')
    (tmp_path / 'file').write_text('')
    for refuse in (check_writable, lambda p: write_file(p, 'x')):
        with pytest.raises(EstimationError, match=r'file/report\.html cannot be written: a part of its path is a file'):
            refuse(tmp_path / 'file' / 'report.html')


def test_an_unwritable_folder_is_said_before_anything_is_computed(tmp_path):
    """Where the tests run as root, whom no permission stops, the check runs without root's rights over files."""
    folder = tmp_path / 'closed'
    folder.mkdir()
    folder.chmod(0o555)
    path = folder / 'report.html'
    code = (
        'import sys\n'
        'from multibody_estimation.reporting import check_writable\n'
        'from multibody_estimation.errors import EstimationError\n'
        'try: check_writable(sys.argv[1])\n'
        'except EstimationError as error: print(error)\n'
    )
    command = [sys.executable, '-c', code, str(path)]
    if os.getuid() == 0:
        drop = shutil.which('setpriv')
        if drop is None:
            pytest.skip('running as root, and setpriv is not installed')
        command = [drop, '--bounding-set=-dac_override', '--inh-caps=-dac_override', *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    folder.chmod(0o755)
    assert done.stdout.startswith(f'{path} cannot be written: ') and 'may not be written to' in done.stdout, done.stderr


@pytest.mark.skipif(not os.path.exists('/dev/full'), reason='this system has no device that is always full')
def test_a_full_disk_is_said_with_the_name():
    with pytest.raises(EstimationError, match='/dev/full cannot be written: the disk is full'):
        write_file('/dev/full', 'x' * 100)


def test_a_file_that_cannot_be_finished_leaves_the_old_one_and_no_rubbish(tmp_path):
    path = tmp_path / 'report.html'
    write_file(path, 'old')
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
        with pytest.raises(EstimationError, match=r'report\.html cannot be written'):
            write_file(path, 'x' * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_text() == 'old' and [p.name for p in tmp_path.iterdir()] == ['report.html']
    assert write_file(tmp_path / 'new' / 'deep' / 'page.html', 'x').read_text() == 'x'


@pytest.mark.parametrize('terminal', [True, False])
def test_progress_tells_iterations_and_time_left_once_it_takes_long(terminal):
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=120)
    with Progress('identifying', patience=0.05, every=0.05, console=console) as progress:
        time.sleep(0.3)
        progress(7, 1234.5, 0.01)
        time.sleep(0.5)
    assert 'identifying: 0 s, preparing' in out.getvalue() and 'iteration 7, cost 1234.5' in out.getvalue()
    assert progress.steps == [(7, 1234.5, 0.01)]
    with Progress('study', total=4, patience=0.05, every=0.05, console=console) as progress:
        time.sleep(0.4)
        progress.done('first')
        # One of four took 0.4 s: three more will take about 1.2 s.
        assert 1.0 < progress.left < 3.0
        time.sleep(0.3)
    assert '1 of 4 (first), about' in out.getvalue()


def test_what_is_quick_says_nothing():
    out = io.StringIO()
    with Progress('identifying', console=Console(file=out, force_terminal=True)) as progress:
        progress(1, 1.0, 1.0)
    assert out.getvalue() == ''


@pytest.mark.parametrize(('seconds', 'text'), [(0.4, '0 s'), (59.6, '1 min 00 s'), (200, '3 min 20 s'), (7500, '2 h 05 min')])
def test_durations_for_people(seconds, text):
    assert duration(seconds) == text
