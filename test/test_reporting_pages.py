# SPDX-License-Identifier: Apache-2.0
"""Whole reports: what the verdict says of good and bad runs, and what a real browser makes of the pages."""

import base64
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from multibody_estimation import tree
from multibody_estimation.calibration import Load, StrainSensor, calibrate_force_torque, held_out
from multibody_estimation.calibration.simulated import random_orientations
from multibody_estimation.centroidal import estimate_centroidal
from multibody_estimation.centroidal.gait import measure, walking_gait
from multibody_estimation.errors import EstimationError
from multibody_estimation.identification import Fit, identify, simulate, track
from multibody_estimation.reporting import Trace, calibration_report, centroidal_report, identification_report, wrench_report
from multibody_estimation.reporting.figures import Series, lines
from multibody_estimation.reporting.page import Report, Section, Verdict
from multibody_estimation.robots import furuta
from multibody_estimation.wrench.learn import learn_covariances
from multibody_estimation.wrench.posterior import solve
from multibody_estimation.wrench.program import compile_wrench
from multibody_estimation.wrench.settings import Prior, WrenchSensor, WrenchSetup

FLAGS = ('--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
         '--disable-component-update', '--disable-sync', '--disable-dev-shm-usage')  # fmt: skip


def torque(t):
    w = 2 * np.pi * t
    return 0.035 * np.sin(0.45 * w + 0.3) + 0.03 * np.sin(1.05 * w) + 0.02 * np.sin(1.9 * w + 1)


def recording(seed, phase=0.0, seconds=6.0):
    return simulate(furuta(truth=True), lambda t: torque(t + phase), seconds=seconds, seed=seed, start=[0, 0.4])


@pytest.fixture(scope='module')
def found():
    """A good fit, and every step of its search."""
    trace = Trace()
    return identify(furuta(), recording(1), progress=trace), trace


@pytest.fixture(scope='module')
def unseen():
    return recording(2, 20.0, 2.0)


@pytest.fixture(scope='module')
def report(found, unseen):
    return identification_report(found[0], held_out=unseen, trace=found[1])


def wrenches(count=60):
    """An arm that is pushed at the hand: two force/torque sensors with more noise than stated, whose noise is learned."""
    links = [
        tree.Link('base'),
        tree.Link('upper', 2.0, (0, 0, -0.15), (0.02, 0.02, 0.002)),
        tree.Link('hand', 1.0, (0, 0, -0.1), (0.01, 0.01, 0.001)),
    ]
    joints = [
        tree.Joint('shoulder', 'base', 'upper', axis=(0, 1, 0)),
        tree.Joint('elbow', 'upper', 'hand', axis=(0, 1, 0), position=(0, 0, -0.3)),
    ]
    model = tree.build(links, joints, name='arm')
    t, still = np.arange(count) * 0.02, np.zeros((count, 3))
    q, dq = np.stack([0.5 * np.sin(2 * t), 0.4 * np.cos(3 * t)], 1), np.stack([np.cos(2 * t), -1.2 * np.sin(3 * t)], 1)
    ddq = np.stack([-2 * np.sin(2 * t), -3.6 * np.cos(3 * t)], 1)
    push = np.zeros((count, 6))
    push[:, 0], push[:, 2] = 5 * np.sin(4 * t), 8 * (t > 0.6)
    contacts = {'hand': Prior(100.0), 'base': Prior(1e3)}
    turning = [WrenchSensor(f'{j}_acceleration', 'joint_acceleration', j, 1e-4) for j in ('shoulder', 'elbow')]
    # Sensors that would read anything tell, by their residuals, what they should have read.
    open_minded = [WrenchSensor(f'{j}_ft', 'force_torque', j, 1e6) for j in ('shoulder', 'elbow')]
    exact = WrenchSetup((WrenchSensor('push', 'external_wrench', 'hand', 1e-4), *turning, *open_minded), contacts=contacts,
                        equation_noise={'*': 1e-4}, motion_noise={'*': 1e-4}, contact_free=Prior(1e-4))  # fmt: skip
    made = solve(compile_wrench(model, exact), q, dq, still, np.concatenate([push, ddq, np.zeros((count, 12))], 1))
    rng, spread = np.random.default_rng(0), np.tile([0.2, 0.2, 0.2, 0.02, 0.02, 0.02], 2)
    y = np.concatenate(
        [ddq + 0.2 * rng.normal(size=ddq.shape), -made.residuals[:, 8:] + spread * rng.normal(size=(count, 12))], 1
    )
    stated = [WrenchSensor(f'{j}_ft', 'force_torque', j, (0.1,) * 3 + (0.01,) * 3, share='ft') for j in ('shoulder', 'elbow')]
    setup = WrenchSetup((*(replace(s, noise=0.2) for s in turning), *stated), contacts=contacts)
    learned = learn_covariances(model, setup, q, dq, still, y, learn=['ft'], iterations=12)
    blocks = [('external_wrench', 'hand'), ('joint_torque', 'shoulder'), ('joint_torque', 'elbow')]
    found = solve(compile_wrench(model, learned.setup), q, dq, still, y, blocks=blocks)
    return wrench_report(found, t, learned=learned, truth={'hand': push})


def test_the_report_of_wrenches_says_how_far_from_the_truth_they_are():
    report = wrenches()
    told = next(s for s in said(report) if s.startswith('hand: off the known truth by'))
    assert 0.7 < float(re.search(r'by ([\d.]+)', told)[1]) < 1.3
    assert any('log evidence rose' in s for s in said(report))
    assert {'External wrenches', 'Joint torques', 'Noise learned from the data'} <= {s.title for s in report.sections}


@pytest.fixture(scope='module')
def pages(report, tmp_path_factory):
    """Each kind of report as a file."""
    folder = tmp_path_factory.mktemp('pages')
    rng = np.random.default_rng(3)
    sensor = StrainSensor.random(1)
    loads = [Load(), Load(1.0, (0.1, 0, 0.05)), Load(0.8, (0, 0.12, 0.05)), Load(1.2, (0, -0.05, 0.12))]
    datasets = [sensor.dataset(load, random_orientations(24, rng), rng) for load in loads]
    factory = sensor.matrix * (1 + 0.05 * rng.normal(size=(6, 6)))
    calibration = calibrate_force_torque(datasets, serial='SN 42')
    calibrated = calibration_report(calibration, datasets, held_out=held_out(datasets, calibrate_force_torque), factory=factory)
    gait = walking_gait(121)
    centroidal = estimate_centroidal(measure(gait, ('center_of_mass', 'contact_wrench', 'angular_momentum'), rng), mass=56.0)
    walked = centroidal_report(centroidal, truth=gait.states)
    named = {'identification': report, 'calibration': calibrated, 'centroidal': walked, 'wrenches': wrenches()}
    return {name: made.save(folder / f'{name}.html') for name, made in named.items()}


def said(report):
    return [f.sentence for f in report.verdict.findings]


def test_a_good_fit_is_called_good(report):
    assert report.verdict.level == 'good' and report.verdict.headline == 'This fit can be used.'
    assert any('it had not seen' in s for s in said(report))
    titles = [s.title for s in report.sections]
    assert 'Prediction of unseen data' in titles and 'Sensitivity to the settings' in titles and 'Convergence' in titles
    assert len(report.html) < 1_500_000


def test_the_table_holds_what_was_found(found, report):
    fit = found[0]
    rows = re.findall(r'<tr.*?</tr>', report.html)
    for name, title, start in zip(fit.names, fit.titles, (p.start for p in fit.problem.binding.parameters)):
        row = next(r for r in rows if f'{title} <small>{name}</small>' in r)
        cells = [re.sub('<[^>]*>', ' ', c).split() for c in re.findall('<td.*?</td>', row)]
        value, deviation = (float(x.replace('−', '-')) for x in (cells[1][0], cells[2][1]))
        i = fit.names.index(name)
        assert abs(value - fit[name]) < 0.06 * fit.std[i] and abs(deviation / fit.std[i] - 1) < 0.06
        assert float(cells[4][0].replace('−', '-')) == pytest.approx(start, rel=1e-3)


def test_a_search_that_was_cut_short_is_called_bad(found):
    fit = identify(furuta(), recording(1), max_iterations=1, problem=found[0].problem)
    report = identification_report(fit, sensitivity=False)
    assert not fit.converged and report.verdict.level == 'bad' and 'Do not use' in report.verdict.headline
    assert any('no independent check' in s for s in said(report))


def test_a_push_from_outside_is_seen_in_the_verdict(found):
    """A hand pushes the arm for half a second: the residuals are neither small nor white."""
    pushed = simulate(furuta(truth=True), torque, seconds=6.0, seed=1, start=[0, 0.4],
                      external=lambda t: np.stack([0.03 * ((t > 3) & (t < 3.5)), 0 * t]))  # fmt: skip
    report = identification_report(identify(furuta(), pushed, problem=found[0].problem), sensitivity=False)
    assert report.verdict.level in ('look', 'bad')
    assert any('larger than the stated noise' in s for s in said(report)) and any('not white' in s for s in said(report))


def test_a_saved_fit_is_reported_with_its_recording_and_without(found, tmp_path):
    fit = found[0]
    fit.save(tmp_path / 'fit.yaml')
    again = Fit.load(tmp_path / 'fit.yaml', furuta())
    bare = identification_report(again)
    assert [s.title for s in bare.sections][:2] == ['Parameters', 'What the data cannot tell']
    assert not any('Motion' in s.title for s in bare.sections)
    whole = identification_report(again, recording(1))
    assert any('Motion' in s.title for s in whole.sections) and whole.verdict.level in ('good', '')


def test_tracked_motion_is_reported_with_its_parameters_known(found):
    report = identification_report(track(found[0], recording(1)))
    assert report.title == 'Motion of furuta' and report.verdict.level in ('good', '')
    assert '>known<' in report.html and 'Sensitivity to the settings' not in [s.title for s in report.sections]


def test_fit_report_refuses_a_bad_path_at_once(found, tmp_path):
    (tmp_path / 'file').write_text('')
    with pytest.raises(EstimationError, match=r'file/report\.html cannot be written'):
        found[0].report(tmp_path / 'file' / 'report.html')


# What a browser makes of them.


@pytest.fixture(scope='module')
def browser(tmp_path_factory):
    webdriver = pytest.importorskip('selenium.webdriver', reason='selenium is not installed')
    chromium, driver = (
        next(filter(None, map(shutil.which, names)), None)
        for names in (('chromium', 'chromium-browser', 'google-chrome'), ('chromedriver',))
    )
    if not chromium or not driver:
        pytest.skip('Chromium and its driver are not installed: apt-get install chromium chromium-driver')
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f'--user-data-dir={tmp_path_factory.mktemp("profile")}'):
        options.add_argument(flag)
    options.set_capability('goog:loggingPrefs', {'browser': 'ALL'})
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield made
    made.quit()


def show(browser, path: Path, width: int = 1200, scheme: str = 'light') -> None:
    metrics = {'width': width, 'height': 900, 'deviceScaleFactor': 1, 'mobile': False}
    browser.execute_cdp_cmd('Emulation.setDeviceMetricsOverride', metrics)
    browser.execute_cdp_cmd('Emulation.setEmulatedMedia', {'features': [{'name': 'prefers-color-scheme', 'value': scheme}]})
    browser.get(path.as_uri())


def test_a_band_with_a_gap_is_drawn_in_two_pieces(browser, tmp_path):
    t = np.linspace(0, 10, 200)
    low = np.where((t > 4) & (t < 6), np.nan, np.sin(t))
    figure = lines('band', [Series('band', t, low, low + 0.5, 'band'), Series('line', t, low)])
    show(browser, Report('band', '', Verdict(''), (Section('band', (figure,)),)).save(tmp_path / 'band.html'))
    d = browser.execute_script("return document.querySelector('path.band').getAttribute('d')")
    assert d.count('M') == d.count('Z') == 2
    left, right = browser.execute_script(
        "const c = document.querySelector('clipPath rect').getBBox(); return [c.x + .41 * c.width, c.x + .59 * c.width]"
    )
    assert not any(left < float(x) < right for x in re.findall(r'[ML]([\d.]+) ', d))


KINDS = ['identification', 'calibration', 'centroidal', 'wrenches']


@pytest.mark.parametrize('kind', KINDS)
def test_every_figure_is_drawn_without_an_error_and_without_the_network(browser, pages, kind):
    show(browser, pages[kind])
    assert [e['message'] for e in browser.get_log('browser')] == []
    assert browser.execute_script("return performance.getEntriesByType('resource').map(e => e.name)") == []
    wanted, drawn = browser.execute_script("""
        const boxes = [...document.querySelectorAll('[data-figure]')];
        return [boxes.length, boxes.map(b => { const s = b.querySelector('svg'); const r = s.getBoundingClientRect();
            return [r.width, r.height, s.querySelectorAll('path, rect').length, /NaN|undefined|Infinity/.test(s.outerHTML)]; })]""")
    assert wanted == len(drawn) >= 6
    for width, height, marks, broken in drawn:
        assert width > 150 and height > 80 and marks > 5 and not broken


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('width', [400, 800])
def test_a_narrow_screen_needs_no_sideways_scrolling_and_no_magnifier(browser, pages, kind, width):
    show(browser, pages[kind], width)
    assert browser.execute_script('return document.documentElement.scrollWidth') <= width
    smallest = browser.execute_script("""
        return Math.min(...[...document.querySelectorAll('p, td, li, figcaption, button, svg text:not(:empty)')].filter(e => e.getClientRects().length)
            .map(e => { const m = e.ownerSVGElement?.getScreenCTM?.(); return parseFloat(getComputedStyle(e).fontSize) * (m ? m.a : 1); }))""")
    assert smallest >= 10.5
    beyond = browser.execute_script("""
        return [...document.querySelectorAll('p, td, li, figcaption, button, b, text')].filter(e => { const r = e.getBoundingClientRect();
            return r.width && (r.left < -1 || r.right > innerWidth + 1); }).map(e => e.textContent).slice(0, 5)""")
    assert beyond == []


def keys(browser, *pressed: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    chain = ActionChains(browser, duration=0)
    for key in pressed:
        chain.send_keys(key)
    chain.perform()


def focused(browser) -> str:
    return browser.execute_script('const e = document.activeElement; return e.dataset.figure ?? e.className ?? e.tagName')


def test_the_keyboard_reaches_every_figure_and_control(browser, pages):
    from selenium.webdriver.common.keys import Keys

    show(browser, pages['identification'])
    wanted = browser.execute_script(
        "return [...document.querySelectorAll('[data-figure][tabindex], .stage, .play, input')].map(e => e.dataset.figure ?? e.className)"
    )
    seen: list[str] = []
    for _ in range(200):
        keys(browser, Keys.TAB)
        seen.append(focused(browser))
        if browser.execute_script('return document.activeElement === document.body'):
            break
    assert set(wanted) <= set(seen) and 'play' in seen and 'stage' in seen


def test_cursor_zoom_and_legend_work_by_keyboard(browser, pages):
    from selenium.webdriver.common.keys import Keys

    show(browser, pages['identification'])
    name = browser.execute_script("""const b = [...document.querySelectorAll('[data-figure]')].find(b => b.parentNode.querySelector('b').textContent === 'arm');
        b.focus(); return b.dataset.figure""")
    box = f"document.querySelector('[data-figure={name}]')"
    labels = f"return [...{box}.querySelectorAll('text')].map(t => t.textContent).join(' ')"
    before = browser.execute_script(labels)
    keys(browser, Keys.ARROW_RIGHT)
    answer = browser.execute_script(f"return {box}.parentNode.querySelector('output').textContent")
    assert re.search(r'time \[s\] 3\.\d+ · measured \S+ · estimate \S+', answer), answer
    keys(browser, '+', '+', '+')
    assert browser.execute_script(labels) != before
    linked = browser.execute_script(
        "return [...document.querySelectorAll('output')].filter(o => o.textContent.includes('time [s]')).length"
    )
    assert linked >= 4  # motion and residuals of both joints share the cursor
    keys(browser, '0')
    assert browser.execute_script(labels) == before
    count = f"return {box}.querySelectorAll('svg path').length"
    paths = browser.execute_script(count)
    browser.execute_script(f"{box}.parentNode.querySelector('.legend button').focus()")
    keys(browser, Keys.SPACE)
    assert browser.execute_script(count) < paths


def test_the_mechanism_plays_scrubs_and_turns_by_keyboard(browser, pages):
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import WebDriverWait

    show(browser, pages['identification'])
    picture = "return document.querySelector('.stage svg').innerHTML"
    first = browser.execute_script(picture)
    browser.execute_script("document.querySelector('.controls input').focus()")
    keys(browser, *[Keys.ARROW_RIGHT] * 12)
    assert browser.execute_script("return document.querySelector('.controls input').value") == '12'
    assert re.fullmatch(r'0\.\d\d s', browser.execute_script("return document.querySelector('.controls .clock').textContent"))
    moved = browser.execute_script(picture)
    assert moved != first
    browser.execute_script("document.querySelector('.stage').focus()")
    keys(browser, Keys.ARROW_LEFT)
    assert browser.execute_script(picture) != moved
    browser.execute_script("document.querySelector('.play').focus()")
    keys(browser, Keys.ENTER)
    WebDriverWait(browser, 20).until(
        lambda b: int(b.execute_script("return document.querySelector('.controls input').value")) > 20
    )
    keys(browser, Keys.ENTER)
    assert browser.execute_script("return document.querySelector('.play').textContent").endswith('Play')
    both = browser.execute_script("return [...document.querySelectorAll('.pane b')].map(b => b.textContent)")
    assert both == ['measured', 'predicted']


def test_dark_and_light_follow_the_system(browser, pages):
    shades = {}
    for scheme in ('light', 'dark'):
        show(browser, pages['identification'], scheme=scheme)
        shades[scheme] = [
            sum(map(int, re.findall(r'\d+', browser.execute_script(f'return getComputedStyle(document.body).{what}'))[:3]))
            for what in ('backgroundColor', 'color')
        ]
    assert shades['light'][0] > 600 > 200 > shades['light'][1]
    assert shades['dark'][1] > 600 > 200 > shades['dark'][0]


@pytest.mark.parametrize('kind', KINDS)
def test_it_prints_to_pdf(browser, pages, kind):
    show(browser, pages[kind], scheme='dark')
    pdf = base64.b64decode(browser.print_page())
    assert pdf.startswith(b'%PDF-') and len(pdf) > 30_000
    assert len(re.findall(rb'/Type\s*/Page\b', pdf)) >= 2
