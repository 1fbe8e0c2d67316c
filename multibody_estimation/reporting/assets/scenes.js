// SPDX-License-Identifier: Apache-2.0
// Three-dimensional wireframes: turned by mouse or arrow keys; played and scrubbed where there is more than one frame.
'use strict';
function scene(box, spec) {
  const time = spec.time ? read(spec.time) : new Float32Array([0]);
  const panes = make('div', box, { className: 'panes' });
  const view = { azimuth: spec.azimuth ?? 35, elevation: spec.elevation ?? 22 };
  let frame = 0;
  const shown = spec.panes.map((p) => {
    const outer = make('div', panes, { className: 'pane' });
    make('b', outer, { textContent: p.title });
    const stage = make('div', outer, { className: 'stage', tabIndex: 0 });
    stage.setAttribute('role', 'img');
    stage.setAttribute('aria-label', `${p.title}: drawing in three dimensions, arrow keys turn it`);
    const nodes = read(p.nodes);
    return { stage, nodes, lines: p.lines, dots: p.dots || [], count: nodes.length / 3 / (p.still ? 1 : time.length), still: p.still };
  });
  // One sphere around everything that is ever drawn, so that turning and playing never change the size.
  const low = [Infinity, Infinity, Infinity], high = [-Infinity, -Infinity, -Infinity];
  for (const p of shown) for (let i = 0; i < p.nodes.length; i++) { const k = i % 3; if (p.nodes[i] < low[k]) low[k] = p.nodes[i]; if (p.nodes[i] > high[k]) high[k] = p.nodes[i]; }
  const middle = low.map((l, k) => (l + high[k]) / 2);
  let radius = 1e-9;
  for (const p of shown) for (let i = 0; i < p.nodes.length; i += 3) radius = Math.max(radius, Math.hypot(p.nodes[i] - middle[0], p.nodes[i + 1] - middle[1], p.nodes[i + 2] - middle[2]));

  function draw() {
    const a = view.azimuth * Math.PI / 180, e = view.elevation * Math.PI / 180, ca = Math.cos(a), sa = Math.sin(a), ce = Math.cos(e), se = Math.sin(e);
    for (const p of shown) {
      const w = Math.max(p.stage.clientWidth, 120), h = Math.min(w * (spec.aspect || .8), 340), s = .47 * Math.min(w, h) / radius;
      const project = (x, y, z) => { x -= middle[0]; y -= middle[1]; z -= middle[2]; return [w / 2 + s * (-sa * x + ca * y), h / 2 - s * (ce * z - se * (ca * x + sa * y))]; };
      const base = p.still ? 0 : frame * p.count * 3, at = [];
      for (let i = 0; i < p.count; i++) at.push(project(p.nodes[base + 3 * i], p.nodes[base + 3 * i + 1], p.nodes[base + 3 * i + 2]));
      let out = `<svg viewBox="0 0 ${w} ${h}" aria-hidden="true">`;
      if (spec.ground !== undefined) {
        let d = '';
        for (let k = -3; k <= 3; k++) {
          const u = k / 3 * radius, line = (p, q) => `M${p.map((v) => v.toFixed(1)).join(' ')}L${q.map((v) => v.toFixed(1)).join(' ')}`;
          const g = (x, y) => project(middle[0] + x, middle[1] + y, spec.ground);
          d += line(g(u, -radius), g(u, radius)) + line(g(-radius, u), g(radius, u));
        }
        out += `<path class="grid" d="${d}"/>`;
      }
      for (const l of p.lines) {
        let d = '';
        l.path.forEach((i, k) => { d += `${k ? 'L' : 'M'}${at[i][0].toFixed(1)} ${at[i][1].toFixed(1)}`; });
        out += `<path d="${d}" fill="none" stroke="var(--c${l.color})" stroke-width="${l.width || 4}" stroke-linecap="round" stroke-linejoin="round" opacity="${l.faint ? .45 : 1}"/>`;
      }
      for (const g of p.dots) {
        let d = '';
        for (const i of g.nodes) d += `M${at[i][0].toFixed(1)} ${at[i][1].toFixed(1)}h0`;
        out += `<path d="${d}" stroke="var(--c${g.color})" stroke-width="${g.size || 6}" stroke-linecap="round" opacity="${g.faint ? .5 : 1}"/>`;
      }
      const axis = (x, y, z, name) => { const f = [26 + 18 * (-sa * x + ca * y), h - 26 - 18 * (ce * z - se * (ca * x + sa * y))]; return `<path class="axis" d="M26 ${h - 26}L${f[0].toFixed(1)} ${f[1].toFixed(1)}"/><text x="${(26 + (f[0] - 26) * 1.5 - 3).toFixed(1)}" y="${(h - 22 + (f[1] - h + 26) * 1.5).toFixed(1)}">${name}</text>`; };
      p.stage.innerHTML = out + axis(1, 0, 0, 'x') + axis(0, 1, 0, 'y') + axis(0, 0, 1, 'z') + '</svg>';
    }
  }
  const turn = (da, de) => { view.azimuth = (view.azimuth + da) % 360; view.elevation = Math.min(Math.max(view.elevation + de, -89), 89); draw(); };
  for (const { stage } of shown) {
    stage.onkeydown = (e) => {
      const to = { ArrowLeft: [-6, 0], ArrowRight: [6, 0], ArrowUp: [0, 6], ArrowDown: [0, -6] }[e.key];
      if (to) { turn(...to); e.preventDefault(); }
      else if (e.key === ' ' && time.length > 1) { play(); e.preventDefault(); }
    };
    let last = null;
    stage.onpointerdown = (e) => { last = [e.clientX, e.clientY]; stage.setPointerCapture(e.pointerId); };
    stage.onpointermove = (e) => { if (last) { turn(-(e.clientX - last[0]) * .5, (e.clientY - last[1]) * .5); last = [e.clientX, e.clientY]; } };
    stage.onpointerup = stage.onpointercancel = () => { last = null; };
  }
  let playing = false, speed = 1, play = () => {};
  if (time.length > 1) {
    const controls = make('div', box, { className: 'controls' });
    const button = make('button', controls, { type: 'button', textContent: '▶ Play', className: 'play' });
    const slider = make('input', controls, { type: 'range', min: 0, max: time.length - 1, value: 0, step: 1 });
    slider.setAttribute('aria-label', 'time of the animation');
    const slow = make('button', controls, { type: 'button', textContent: 'speed 1×' });
    const clock = make('span', controls, { className: 'clock' });
    const show = (k) => {
      frame = Math.min(Math.max(Math.round(k), 0), time.length - 1);
      slider.value = frame;
      const at = `${time[frame].toFixed(2)} s`;
      slider.setAttribute('aria-valuetext', at);
      clock.textContent = at;
      draw();
      const group = groups[spec.link];
      if (group) { group.cursor = time[frame]; for (const m of group.members) m.point(); }
    };
    let began = 0, from = 0;
    const tick = (now) => {
      if (!playing) return;
      const t = from + speed * (now - began) / 1000;
      if (t >= time[time.length - 1]) { show(time.length - 1); stop(); return; }
      show(first(time, t));
      requestAnimationFrame(tick);
    };
    const stop = () => { playing = false; button.textContent = '▶ Play'; };
    play = () => {
      if (playing) { stop(); return; }
      playing = true;
      button.textContent = '❚❚ Pause';
      if (frame >= time.length - 1) frame = 0;
      from = time[frame]; began = performance.now();
      requestAnimationFrame(tick);
    };
    button.onclick = play;
    slow.onclick = () => { speed = speed === 1 ? .25 : speed === .25 ? .5 : 1; slow.textContent = `speed ${speed}×`; from = time[frame]; began = performance.now(); };
    slider.oninput = () => { stop(); show(Number(slider.value)); };
    show(0);
  }
  redraws.push(draw);
  draw();
}

const kinds = { lines, matrix, scene };
const figures = JSON.parse(document.getElementById('figures').textContent);
for (const box of document.querySelectorAll('[data-figure]')) { const spec = figures[box.dataset.figure]; kinds[spec.kind](box, spec); }
let width = document.documentElement.clientWidth, waiting = 0;
const again = () => { for (const draw of redraws) draw(); };
addEventListener('resize', () => { const now = document.documentElement.clientWidth; if (now !== width) { width = now; cancelAnimationFrame(waiting); waiting = requestAnimationFrame(again); } });
// For paper the figures are drawn at the width of a page, whatever the screen has.
addEventListener('beforeprint', () => { for (const d of document.querySelectorAll('details')) d.open = true; document.body.classList.add('paper'); again(); });
addEventListener('afterprint', () => { document.body.classList.remove('paper'); again(); });
document.documentElement.dataset.drawn = String(redraws.length);
