# SPDX-License-Identifier: Apache-2.0
"""Our report beside that of mujoco.sysid, of the same recording: size, time to make, what a browser without network shows, what it answers.

Videos of the peer need OpenGL and are left out. Figures are counted as drawn where the browser has made them; the browser has no network,
as on a robot. A question counts as answered where the page's text or the names in its figures speak of it.
"""

import contextlib
import io
import json
import re
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.furuta_mujoco import COUNT, DT, SIGMA, STRIDE, TABLE, XML, names_of, ours, record, setters, start_of

QUESTIONS = {
    'is it usable, in one sentence': r'this fit can be used|usable with care|do not use',
    'why did it stop': r'converged:|stopped|terminat',
    'estimates and starts': r'start|initial',
    'uncertainty': r'standard deviation|confidence|interval|±',
    'what the data cannot tell': r'cannot tell|not told|observable|identifiable|conditioning',
    'correlation': r'correlation',
    'measured and fitted motion': r'measured|observation|predicted',
    'what drove it': r'command|control signal',
    'residuals in units of noise': r'residual rms \[std\]|sigma|stated noise',
    'are residuals white': r'whiteness|autocorrelation',
    'prediction of unseen data': r'unseen|held.?out',
    'course of the search': r'iteration|optimization trace|objective',
    'what it hangs on': r'sensitivity',
    'how to repeat it': r'sha-256|numpy',
}
FLAGS = ('--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
         '--disable-component-update', '--disable-sync', '--disable-dev-shm-usage', '--host-resolver-rules=MAP * ~NOTFOUND')  # fmt: skip


def peer_report(mujoco, sysid, y, u, x0, folder):
    """Fit with the peer's best recipe for the whole record, and its report; (path, seconds to make the report)."""
    folder.mkdir()
    spec = mujoco.MjSpec.from_string(XML)
    model = spec.compile()
    k, t = np.arange(COUNT * STRIDE + 1), np.arange(1, COUNT + 1) * STRIDE * DT
    control, sensor = sysid.TimeSeries.from_control_names, sysid.TimeSeries.from_names
    sequences = sysid.ModelSequences('furuta', spec, 'rec', x0, control(k * DT, u[:, None], model), sensor(t, y, model))
    table = sysid.ParameterDict()
    for name in names_of(False):
        _, _, lower, upper, _ = TABLE[name]
        setter = setters()[name]
        table.add(
            sysid.Parameter(name, start_of(name, 'A'), lower, upper, modifier=lambda s, p, g=setter: g(s, float(p.value[0])))
        )

    def in_sigma(params, pred, meas, model, return_pred_all, state=None, sensor_weights=None):
        i = np.round((meas.times - state[0, 0]) / DT).astype(int)
        return (state[i, 1:3] - meas.data) / SIGMA, sysid.TimeSeries(meas.times, state[i, 1:3], meas.signal_mapping), meas

    function = sysid.build_residual_fn(models_sequences=[sequences], modify_residual=in_sigma)
    with contextlib.redirect_stdout(io.StringIO()):
        found, result = sysid.optimize(table, function, optimizer='scipy_parallel_fd', verbose=False, x_scale='jac')
        begin = time.perf_counter()
        sysid.default_report([sequences], table, found, function, result, title='Furuta', save_path=folder, generate_videos=False)
        seconds = time.perf_counter() - begin
    return folder / 'report.html', seconds


def browser(folder):
    """Chromium without network, or None."""
    try:
        from selenium import webdriver
    except ImportError:
        return None
    chromium, driver = (
        next(filter(None, map(shutil.which, n)), None)
        for n in (('chromium', 'chromium-browser', 'google-chrome'), ('chromedriver',))
    )
    if not chromium or not driver:
        return None
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f'--user-data-dir={folder}'):
        options.add_argument(flag)
    options.set_capability('goog:loggingPrefs', {'browser': 'ALL'})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))


def judged(path, seconds, chrome):
    """What there is to say about one report."""
    html = path.read_text(encoding='utf-8')
    outside = sorted(set(re.findall(r'(?:src|href)=["\'](https?://[^/"\']+)', html)))
    found = {'kB': round(len(html) / 1e3), 'seconds to make': round(seconds, 2), 'hosts it needs': len(outside)}
    # Words of the page and of its data; of ours without the code that draws. Words inside the peer's figures count, though unseen offline.
    text = re.sub(r'<style.*?</style>|<script>// SPDX.*?</script>', ' ', html, flags=re.S)
    if chrome is not None:
        chrome.execute_cdp_cmd(
            'Emulation.setDeviceMetricsOverride', {'width': 1200, 'height': 900, 'deviceScaleFactor': 1, 'mobile': False}
        )
        chrome.get(path.as_uri())
        time.sleep(2)
        found['errors'] = len([e for e in chrome.get_log('browser') if e['level'] == 'SEVERE'])
        found['figures drawn'] = chrome.execute_script(
            "return document.querySelectorAll('[data-figure] > svg, [data-figure] > .panes, .plotly-graph-div .main-svg:first-child').length")  # fmt: skip
        chrome.execute_cdp_cmd(
            'Emulation.setDeviceMetricsOverride', {'width': 400, 'height': 900, 'deviceScaleFactor': 1, 'mobile': False}
        )
        found['wide at 400 px'] = chrome.execute_script('return document.documentElement.scrollWidth')
    answered = [q for q, words in QUESTIONS.items() if re.search(words, text, re.I)]
    found['answers'] = len(answered)
    print(f'{path.name}: {found}\n  does not answer: {", ".join(q for q in QUESTIONS if q not in answered) or "-"}', flush=True)
    return found


def main():
    """Both reports."""
    try:
        import mujoco
        import mujoco.rollout
        from absl import logging
        from mujoco import sysid
    except ImportError as error:
        print(f"mujoco.sysid is not installed ({error}): pip install 'mujoco[sysid]'.")
        print(json.dumps({'name': 'reports', 'ours': None, 'peers': {}, 'ratio': None, 'holds': None}))
        return
    logging.set_verbosity(logging.ERROR)
    clean, u, x0 = record(mujoco, mujoco.rollout)
    y = clean + SIGMA * np.random.default_rng(7).standard_normal(clean.shape)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        theirs, their_seconds = peer_report(mujoco, sysid, y, u, x0, folder / 'peer')
        fit = ours(y, u, 'A', False)[0]
        fit.report(folder / 'ours.html')  # compiles
        begin = time.perf_counter()
        mine = fit.report(folder / 'ours.html')
        seconds = time.perf_counter() - begin
        chrome = browser(folder / 'profile')
        if chrome is None:
            print('Chromium, its driver or selenium is missing: what a browser shows is not judged.')
        try:
            own, peer = judged(mine, seconds, chrome), judged(theirs, their_seconds, chrome)
        finally:
            if chrome is not None:
                chrome.quit()
    holds = own['answers'] > peer['answers'] and own['hosts it needs'] == 0 and own.get('errors', 0) == 0
    ratio = own['answers'] / max(peer['answers'], 1)
    print(json.dumps({'name': 'reports', 'ours': own, 'peers': {'mujoco.sysid': peer}, 'ratio': ratio, 'holds': holds}))


if __name__ == '__main__':
    main()
