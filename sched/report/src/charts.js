// The line charts: values under the pointer.
for (const plot of document.querySelectorAll('svg[data-hover]')) {
  const { x: name, lines, events } = JSON.parse(plot.dataset.hover);
  const places = new Map();
  for (const line of lines) for (const [x, at] of line.points) places.set(x, at);
  const sorted = [...places].sort((a, b) => a[1] - b[1]);
  const tip = document.createElement('div');
  tip.className = 'tip';
  tip.hidden = true;
  plot.parentElement.append(tip);
  const rule = document.createElementNS('http://www.w3.org/2000/svg', 'path');
  rule.setAttribute('class', 'rule');
  plot.append(rule);
  const leave = () => { tip.hidden = true; rule.removeAttribute('d'); };
  plot.addEventListener('pointerleave', leave);
  plot.addEventListener('pointermove', event => {
    const box = plot.getBoundingClientRect(), scale = plot.viewBox.baseVal.width / box.width;
    const at = (event.clientX - box.left) * scale;
    const [x, place] = sorted.reduce((best, next) => Math.abs(best[1] - at) > Math.abs(next[1] - at) ? next : best);
    rule.setAttribute('d', 'M' + place + ' ' + plot.dataset.top + 'V' + plot.dataset.bottom);
    const row = text => { const div = document.createElement('div'); div.textContent = text; return div; };
    const rows = [row(name + ' ' + x)];
    for (const line of lines) {
      const point = line.points.find(p => p[0] === x);
      if (point) rows.push(row(line.name + ': ' + point[3]));
    }
    for (const [when, what] of events) if (when === x) rows.push(row(what));
    const first = document.createElement('b');
    first.textContent = rows[0].textContent;
    rows[0].replaceChildren(first);
    tip.replaceChildren(...rows);
    tip.hidden = false;
    const figure = plot.parentElement.getBoundingClientRect();
    placeTip(tip, event.clientX - figure.left, event.clientY - figure.top - 20, figure.width);
  });
}
