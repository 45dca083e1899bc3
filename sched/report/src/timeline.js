// The timelines: drawn on canvases, zoomed by Ctrl and the wheel, by pinching, buttons and keys, moved by dragging.
class TimelineView {
  constructor(figure, model) {
    this.figure = figure;
    this.model = model;
    this.linked = [];
    this.hovered = -1;
    this.pointers = new Map();
    const make = (tag, name, parent) => {
      const element = document.createElement(tag);
      element.className = name;
      parent.append(element);
      return element;
    };
    figure.querySelector('.still').style.display = 'none';
    const tools = make('div', 'tools', figure.querySelector('figcaption'));
    const button = (text, title, act) => {
      const element = make('button', '', tools);
      element.type = 'button';
      element.textContent = text;
      element.title = title;
      element.setAttribute('aria-label', title);
      element.addEventListener('click', act);
    };
    button('−', 'Zoom out', () => this.zoom(2));
    button('+', 'Zoom in', () => this.zoom(0.5));
    button('‹', 'Earlier', () => this.move(-0.5));
    button('›', 'Later', () => this.move(0.5));
    button('All', 'Show all', () => this.show(0, model.seconds));
    this.stage = make('div', 'stage', figure);
    this.canvas = make('canvas', 'view', this.stage);
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute('role', 'img');
    this.canvas.setAttribute('aria-label', model.name + ' timeline; plus and minus zoom, arrows move');
    this.strip = make('canvas', 'all', this.stage);
    this.tip = make('div', 'tip', this.stage);
    this.tip.hidden = true;
    const hint = make('p', 'hint', figure);
    hint.textContent = 'Drag to move, Ctrl + wheel or double click to zoom; drag in the lower strip to choose a window.';
    this.events();
  }

  measure() {
    const style = getComputedStyle(document.documentElement);
    const get = name => style.getPropertyValue('--' + name).trim();
    this.colours = Object.fromEntries(['ink', 'text', 'quiet', 'line', 'rail', 'card', 'mark', 'hatch', 'measured', 'on-dark'].map(n => [n, get(n)]));
    this.fills = ['batching', 'transferring', 'training', 'all-reduce'].map(get);
    this.inks = [this.colours['on-dark'], '#2b1d00', '#03231c', this.colours['on-dark']];
    this.font = getComputedStyle(document.body).fontFamily;
    this.patterns = null;
    this.ratio = window.devicePixelRatio || 1;
    this.width = this.stage.clientWidth;
    const many = this.model.lanes.length;
    this.row = 9 > many ? 26 : 17 > many ? 20 : 33 > many ? 16 : 13;
    const context = this.canvas.getContext('2d');
    context.font = '12px ' + this.font;
    const widest = Math.max(40, ...this.model.lanes.map(lane => context.measureText(lane.name).width));
    this.left = Math.round(14 + Math.min(widest, this.width * 0.24));
    this.right = Math.floor(this.width) - 44;
    this.top = this.model.marks.length ? 18 : 4;
    let y = this.top;
    this.tops = this.model.lanes.map((lane, i) => {
      if (i) y += this.model.lanes[i - 1].resource === lane.resource ? 2 : 6;
      y += this.row;
      return y - this.row;
    });
    this.bottom = y;
    this.size(this.canvas, y + 24);
    this.thin = Math.max(2, Math.min(5, Math.floor(48 / Math.max(1, many))));
    this.size(this.strip, many * (this.thin + 1) + 8);
    this.whole = null;
    if (!this.to) this.show(0, readable(this.model, this.right - this.left)); else this.draw();
  }

  size(canvas, height) {
    canvas.width = Math.round(this.width * this.ratio);
    canvas.height = Math.round(height * this.ratio);
    canvas.style.height = height + 'px';
  }

  show(from, to, silent) {
    const end = this.model.seconds, most = Math.max(end, ...this.linked.map(v => v.model.seconds));
    const span = Math.min(most, Math.max(to - from, end * 1e-7, 1e-9));
    this.from = Math.max(0, Math.min(from, most - span));
    this.to = this.from + span;
    this.draw();
    if (!silent) for (const view of this.linked) view.show(this.from, this.to, true);
  }

  zoom(factor, at = (this.from + this.to) / 2) {
    this.show(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }

  move(share) {
    const by = (this.to - this.from) * share;
    this.show(this.from + by, this.to + by);
  }

  x(time) { return this.left + (time - this.from) / (this.to - this.from) * (this.right - this.left); }

  time(x) { return this.from + (x - this.left) / (this.right - this.left) * (this.to - this.from); }

  draw() {
    if (this.asked) return;
    this.asked = requestAnimationFrame(() => { this.asked = 0; this.paint(); });
  }

  // Fills of the routes' patterns, as in the still picture.
  pattern(context, work, route) {
    const routes = this.model.routes.length, kind = 2 > routes ? 0 : route % Math.min(4, routes);
    if (!kind) return this.fills[work];
    this.patterns ??= new Map();
    const key = work * 4 + kind;
    if (!this.patterns.has(key)) {
      const tile = document.createElement('canvas');
      tile.width = tile.height = 16;
      const c = tile.getContext('2d');
      c.scale(2, 2);
      c.fillStyle = this.fills[work];
      c.fillRect(0, 0, 8, 8);
      c.fillStyle = c.strokeStyle = this.colours.hatch;
      c.lineWidth = 1.6;
      const lines = [[], [[-2, 2, 2, -2], [0, 8, 8, 0], [6, 10, 10, 6]], [], [[2, 0, 2, 8], [6, 0, 6, 8]]][kind];
      for (const [x, y, u, v] of lines) { c.beginPath(); c.moveTo(x, y); c.lineTo(u, v); c.stroke(); }
      if (kind === 2) for (const at of [2, 6]) { c.beginPath(); c.arc(at, at, 1.1, 0, 7); c.fill(); }
      const pattern = context.createPattern(tile, 'repeat');
      pattern.setTransform(new DOMMatrix([0.5, 0, 0, 0.5, 0, 0]));
      this.patterns.set(key, pattern);
    }
    return this.patterns.get(key);
  }

  // Density: the share of each pixel's time that each kind of work takes, of the activities from `first` to `after` and of the embedded density.
  density(lane, index, first, after, from, to, columns) {
    const sums = new Float64Array(4 * columns), scale = columns / (to - from);
    const add = (start, end, work, weight) => {
      const a = Math.max(0, (start - from) * scale), b = Math.min(columns, (end - from) * scale);
      for (let c = Math.floor(a); b > c; c++) sums[4 * c + work] += weight * Math.max(0, Math.min(b, c + 1) - Math.max(a, c));
    };
    for (let at = first; after > at; at++) {
      const i = lane.list[at];
      add(this.model.starts[i], this.model.ends[i], this.model.kinds[this.model.kind[i]][0], 1);
    }
    const gap = this.model.gap;
    if (gap) {
      const bins = gap.bins[index], width = 4 * (gap.to - gap.from) / bins.length;
      bins.forEach((share, at) => {
        const start = gap.from + Math.floor(at / 4) * width;
        if (share && to > start && start + width > from) add(start, start + width, at % 4, share / 100);
      });
    }
    return sums;
  }

  stacked(context, sums, left, top, height) {
    for (let c = 0; sums.length > 4 * c; c++) {
      const all = sums[4 * c] + sums[4 * c + 1] + sums[4 * c + 2] + sums[4 * c + 3], fit = all > 1 ? 1 / all : 1;
      let y = top + height;
      for (let work = 0; 4 > work; work++) {
        const part = sums[4 * c + work] * fit * height;
        if (!part) continue;
        context.fillStyle = this.fills[work];
        context.fillRect(left + c, y - part, 1, part);
        y -= part;
      }
    }
  }

  paint() {
    const { model, colours, left, right, row } = this, context = this.canvas.getContext('2d');
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.clearRect(0, 0, this.width, this.bottom + 24);
    context.textBaseline = 'middle';
    const style = (size, colour, align, italic) => {
      context.font = (italic ? 'italic ' : '') + size + 'px ' + this.font;
      context.fillStyle = colour;
      context.textAlign = align;
    };
    for (const [time, label] of timeTicks(this.from, this.to, Math.floor((right - left) / 90))) {
      const x = Math.round(this.x(time)) + 0.5;
      context.fillStyle = colours.line;
      context.fillRect(x - 0.5, this.top - 2, 1, this.bottom - this.top + 6);
      style(11, colours.quiet, 'center');
      context.fillText(label, x, this.bottom + 14);
    }
    model.lanes.forEach((lane, index) => this.paintLane(context, lane, index, style));
    const seen = model.marks.filter(mark => mark[2] >= this.from && this.to > mark[1]).map(([name, start, end]) =>
      [name, Math.max(left, this.x(start)), Math.min(right, this.x(end))]);
    let last = -9;
    context.fillStyle = colours.mark;
    for (const [, x, end] of seen) {
      context.globalAlpha = end - x >= 1 ? 0.13 : 0.7;
      if (end - x >= 1 || x > last + 3) context.fillRect(x, this.top - 2, Math.max(1, end - x), this.bottom - this.top + 2);
      last = x;
    }
    context.globalAlpha = 1;
    // Labels without overlap: first those that fit above their band, then the others.
    style(11, colours.quiet, 'left');
    const taken = [];
    for (const first of [true, false]) for (const [name, x, end] of seen) {
      const width = context.measureText(name).width, fits = 1 > end - x || end - x >= width;
      if (fits !== first || x + width > this.width || taken.some(([a, b]) => x + width + 8 > a && b + 8 > x)) continue;
      context.fillText(name, x, this.top - 10);
      taken.push([x, x + width]);
    }
    this.paintStrip();
  }

  paintLane(context, lane, index, style) {
    const { model, colours, left, right, row } = this, top = this.tops[index], width = right - left;
    context.fillStyle = colours.rail;
    context.fillRect(left, top, width, row);
    style(12, lane.simulated ? colours.quiet : colours.text, 'right', lane.simulated);
    let name = lane.name;
    while (name.length > 2 && context.measureText(name).width > left - 12) name = name.slice(0, -2) + '…';
    context.fillText(name, left - 9, top + row / 2 + 0.5);
    const [first, after] = inView(model, lane, this.from, this.to), scale = width / (this.to - this.from);
    let narrow = 0, covered = this.from, busy = 0;
    for (let at = first; after > at; at++) {
      const i = lane.list[at], end = Math.min(model.ends[i], this.to);
      if (2.5 > (model.ends[i] - model.starts[i]) * scale) narrow++;
      busy += Math.max(0, end - Math.max(covered, model.starts[i]));
      covered = Math.max(covered, end);
    }
    const gap = model.gap, inGap = gap && gap.to > this.from && this.to > gap.from;
    if (inGap || after - first > 24 && narrow * 3 > after - first || after - first > width) {
      const sums = this.density(lane, index, first, after, this.from, this.to, Math.floor(width));
      this.stacked(context, sums, left, top, row);
      busy = sums.reduce((sum, part) => sum + part, 0) / Math.floor(width) * (this.to - this.from);
    } else {
      context.save();
      context.beginPath();
      context.rect(left, top, width, row);
      context.clip();
      for (let at = first; after > at; at++) this.paintBlock(context, lane.list[at], top);
      context.restore();
    }
    style(11, colours.quiet, 'right');
    const share = Math.min(1, busy / (Math.min(this.to, model.seconds) - this.from));
    if (model.seconds > this.from) context.fillText(Math.round(100 * share) + '%', this.width, top + row / 2 + 0.5);
  }

  paintBlock(context, i, top) {
    const { model, row } = this, [work, route] = model.kinds[model.kind[i]];
    const x = this.x(model.starts[i]), width = Math.max(0.6, this.x(model.ends[i]) - x), shown = width > 4 ? width - 0.7 : width;
    context.fillStyle = this.pattern(context, work, route);
    context.fillRect(x, top, shown, row);
    const of = this.hovered;
    if (of >= 0 && model.batch[of] === model.batch[i] && model.epochs[of] === model.epochs[i]) {
      context.lineWidth = 2;
      context.strokeStyle = this.colours.ink;
      context.strokeRect(x + 1, top + 1, Math.max(1, shown - 2), row - 2);
    }
    if (14 > shown || 15 > row) return;
    context.font = '10.5px ' + this.font;
    const number = String(model.batch[i]), label = [LETTERS[work] + number, number].find(l => shown - 5 >= context.measureText(l).width);
    if (!label) return;
    context.textAlign = 'center';
    context.lineWidth = 3;
    context.lineJoin = 'round';
    context.strokeStyle = this.fills[work];
    context.strokeText(label, x + shown / 2, top + row / 2 + 0.5);
    context.fillStyle = this.inks[work];
    context.fillText(label, x + shown / 2, top + row / 2 + 0.5);
  }

  // Overview: the whole timeline, with the window marked.
  paintStrip() {
    const { model, left, right, thin, ratio } = this, height = this.strip.height / ratio;
    if (!this.whole) {
      this.whole = document.createElement('canvas');
      this.whole.width = this.strip.width;
      this.whole.height = this.strip.height;
      const context = this.whole.getContext('2d');
      context.scale(ratio, ratio);
      model.lanes.forEach((lane, index) => {
        context.fillStyle = this.colours.rail;
        context.fillRect(left, 4 + index * (thin + 1), right - left, thin);
        const sums = this.density(lane, index, 0, lane.list.length, 0, model.seconds, Math.floor(right - left));
        this.stacked(context, sums, left, 4 + index * (thin + 1), thin);
      });
    }
    const context = this.strip.getContext('2d');
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.strip.width, this.strip.height);
    context.drawImage(this.whole, 0, 0);
    context.scale(ratio, ratio);
    const at = time => left + Math.min(1, time / model.seconds) * (right - left);
    const x = at(this.from), width = Math.max(3, at(this.to) - x);
    context.fillStyle = this.colours.card;
    context.globalAlpha = 0.62;
    context.fillRect(left, 0, x - left, height);
    context.fillRect(x + width, 0, right - x - width, height);
    context.globalAlpha = 1;
    context.strokeStyle = this.colours.measured;
    context.lineWidth = 1.5;
    context.strokeRect(x, 1, width, height - 2);
  }

  events() {
    const { canvas, strip, pointers } = this;
    canvas.addEventListener('wheel', event => {
      if (!event.ctrlKey && !event.metaKey) {
        if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) { event.preventDefault(); this.move(event.deltaX / this.width); }
        return;
      }
      event.preventDefault();
      this.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 120), this.time(event.offsetX));
    }, { passive: false });
    canvas.addEventListener('dblclick', event => this.zoom(event.shiftKey ? 2 : 0.5, this.time(event.offsetX)));
    canvas.addEventListener('keydown', event => {
      const act = {
        '+': () => this.zoom(0.5), '=': () => this.zoom(0.5), '-': () => this.zoom(2), '0': () => this.show(0, this.model.seconds),
        ArrowLeft: () => this.move(-0.2), ArrowRight: () => this.move(0.2),
        Home: () => this.show(0, this.to - this.from), End: () => this.show(this.model.seconds - this.to + this.from, this.model.seconds),
      }[event.key];
      if (act) { event.preventDefault(); act(); }
    });
    canvas.addEventListener('pointerdown', event => {
      canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, event.offsetX);
    });
    canvas.addEventListener('pointermove', event => {
      if (!pointers.has(event.pointerId)) return this.point(event.offsetX, event.offsetY);
      const before = [...pointers.values()];
      pointers.set(event.pointerId, event.offsetX);
      const now = [...pointers.values()];
      if (now.length === 1) {
        const by = this.time(before[0]) - this.time(now[0]);
        this.show(this.from + by, this.to + by);
      } else {
        const apart = list => Math.max(10, Math.abs(list[0] - list[1]));
        this.zoom(apart(before) / apart(now), this.time((now[0] + now[1]) / 2));
      }
    });
    for (const name of ['pointerup', 'pointercancel']) canvas.addEventListener(name, event => pointers.delete(event.pointerId));
    canvas.addEventListener('pointerleave', () => this.point(-1, -1));
    const centre = event => {
      const middle = (event.offsetX - this.left) / (this.right - this.left) * this.model.seconds, half = (this.to - this.from) / 2;
      this.show(middle - half, middle + half);
    };
    strip.addEventListener('pointerdown', event => { strip.setPointerCapture(event.pointerId); centre(event); });
    strip.addEventListener('pointermove', event => { if (event.buttons) centre(event); });
  }

  // The activity under the pointer.
  point(x, y) {
    const index = this.tops.findIndex(top => y >= top && top + this.row > y), lane = this.model.lanes[index];
    let found = -1;
    if (lane && x >= this.left && this.right >= x) {
      const pixel = (this.to - this.from) / (this.right - this.left), time = this.time(x);
      const [first, after] = inView(this.model, lane, time - pixel, time + pixel);
      let best = Infinity;
      for (let at = first; after > at; at++) {
        const i = lane.list[at], off = Math.max(this.model.starts[i] - time, time - this.model.ends[i], 0);
        if (best > off) [best, found] = [off, i];
      }
    }
    if (found !== this.hovered) { this.hovered = found; this.draw(); }
    this.tip.hidden = 0 > found;
    if (0 > found) return;
    const { model, tip } = this, [work, route] = model.kinds[model.kind[found]];
    const line = (...parts) => { const div = document.createElement('div'); div.append(...parts); return div; };
    const bold = document.createElement('b'), dot = document.createElement('i');
    dot.style.background = this.fills[work];
    bold.textContent = KINDS[work] + ' of mini-batch ' + model.batch[found];
    const where = model.routes[route] ? 'route ' + route + ': ' + model.routes[route] : 'route ' + route;
    tip.replaceChildren(
      line(dot, bold),
      line('epoch ' + model.epochs[found] + (model.routes.length > 1 ? ', ' + where : '')),
      line(seconds(model.ends[found] - model.starts[found]) + ', from ' + seconds(model.starts[found])),
      line(lane.name + (lane.simulated ? ' (simulated)' : '')));
    placeTip(tip, x, y, this.width);
  }
}

// Places a tip beside a point, within a width in pixels.
function placeTip(tip, x, y, width) {
  const beside = x + 16 + tip.offsetWidth > width ? x - 16 - tip.offsetWidth : x + 16;
  tip.style.left = Math.max(0, Math.min(beside, width - tip.offsetWidth)) + 'px';
  tip.style.top = y + 18 + 'px';
}

(function () {
  const packed = JSON.parse(document.getElementById('timelines').textContent), views = [];
  for (const figure of document.querySelectorAll('figure.timeline')) {
    const model = unpack(packed[figure.dataset.index]);
    if (model.seconds > 0 && model.lanes.length) views.push(new TimelineView(figure, model));
  }
  if (views.length === 2) {
    const label = document.createElement('label'), box = document.createElement('input');
    label.className = 'link';
    box.type = 'checkbox';
    box.checked = true;
    const link = () => {
      views[0].linked = box.checked ? [views[1]] : [];
      views[1].linked = box.checked ? [views[0]] : [];
      if (box.checked && views[0].to) views[0].show(views[0].from, views[0].to);
    };
    box.addEventListener('change', link);
    label.append(box, 'the same window in both timelines');
    views[0].figure.before(label);
    link();
  }
  const measure = () => views.forEach(view => { if (view.stage.clientWidth) view.measure(); });
  measure();
  let width = window.innerWidth;
  window.addEventListener('resize', () => { if (width !== window.innerWidth) { width = window.innerWidth; measure(); } });
  window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', measure);
})();
