'use strict';
// Unpacks an embedded timeline: starts and ends in seconds, a sorted list of activities a lane.
const KINDS = ['Batching', 'Transferring', 'Training', 'All-reduce'];
const LETTERS = 'BTMA';

function unpack(packed) {
  const count = packed.kind.length;
  const starts = new Float64Array(count), ends = new Float64Array(count), epochs = new Int32Array(count);
  const lanes = packed.lanes.map(([name, resource, simulated]) => ({ name, resource, simulated, list: [] }));
  let time = 0, epoch = 0;
  for (let i = 0; i !== count; i++) {
    time += packed.start[i];
    epoch += packed.epoch[i];
    starts[i] = time * packed.unit;
    ends[i] = (time + packed.length[i]) * packed.unit;
    epochs[i] = epoch;
    for (const lane of packed.kinds[packed.kind[i]][2]) lanes[lane].list.push(i);
  }
  for (const lane of lanes) {
    // Latest end up to each activity: ascending, so that a binary search finds the first one in view.
    lane.reach = new Float64Array(lane.list.length);
    let latest = 0;
    lane.list.forEach((i, at) => { lane.reach[at] = latest = Math.max(latest, ends[i]); });
  }
  const { name, seconds, routes, marks, gap, kinds, kind, batch } = packed;
  return { name, seconds, routes, marks, gap, kinds, kind, batch, starts, ends, epochs, lanes };
}

// Binary search: the first index at which `test`, false and then true, is true.
function firstIndex(count, test) {
  let low = 0, high = count;
  while (low !== high) {
    const middle = (low + high) >> 1;
    if (test(middle)) high = middle; else low = middle + 1;
  }
  return low;
}

// The range of a lane's list that is visible from one time to another.
function inView(model, lane, from, to) {
  const first = firstIndex(lane.list.length, at => lane.reach[at] >= from);
  const after = firstIndex(lane.list.length, at => model.starts[lane.list[at]] >= to);
  return [first, Math.max(first, after)];
}

// Length in seconds of a window whose mini-batches are wide enough for their numbers, at a width in pixels.
function readable(model, width) {
  const longest = model.lanes.reduce((best, lane) => lane.list.length > best.list.length ? lane : best, { list: [] }).list;
  const some = Math.max(1, Math.floor(width / 24));
  if (width / 9 > longest.length || some >= longest.length) return model.seconds;
  return Math.min(model.seconds, Math.max(model.ends[longest[some - 1]], model.seconds * 1e-6));
}

function seconds(value) {
  const size = Math.abs(value);
  const digits = (v, n) => Number(v.toPrecision(n)).toString();
  if (size === 0) return '0 s';
  if (1e-3 > size) return digits(value * 1e6, 3) + ' µs';
  if (1 > size) return digits(value * 1e3, 3) + ' ms';
  if (600 > size) return digits(value, 5) + ' s';
  const [unit, big, small] = 7200 > size ? [1, 'min', 's'] : [60, 'h', 'min'];
  const whole = Math.round(size / unit);
  return Math.floor(whole / 60) + ' ' + big + ' ' + String(whole % 60).padStart(2, '0') + ' ' + small;
}

// Ticks at round times within a window, each with its label.
function timeTicks(from, to, most) {
  const raw = (to - from) / Math.max(2, most), power = 10 ** Math.floor(Math.log10(raw));
  let step = [1, 2, 5, 10].map(m => m * power).find(s => s >= raw * 0.999999) || 10 * power;
  if (step > 20) step = [30, 60, 120, 300, 600, 900, 1800, 3600].find(s => s >= raw) || 3600 * Math.ceil(raw / 3600);
  const [unit, name] = 1e-3 >= to ? [1e-6, 'µs'] : 1 >= to ? [1e-3, 'ms'] : step >= 3600 ? [3600, 'h'] : step >= 60 ? [60, 'min'] : [1, 's'];
  const decimals = Math.min(12, Math.max(0, -Math.floor(Math.log10(step / unit * 1.000001))));
  const ticks = [];
  for (let i = Math.ceil(from / step - 1e-6); to / step + 1e-6 >= i && 60 > ticks.length; i++) {
    ticks.push([i * step, (i * step / unit).toFixed(decimals) + ' ' + name]);
  }
  return ticks;
}
