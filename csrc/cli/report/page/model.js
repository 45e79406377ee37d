'use strict';
// What the page shows: the columns of the data, decoded, and what follows from them.

// --- Columns --------------------------------------------------------------------------------

const kTypes = {
  u8: [Uint8Array, 0xff], u16: [Uint16Array, 0xffff], u32: [Uint32Array, 0xffffffff], f64: [Float64Array, NaN],
};

// Little-endian numbers in base64, as every machine that runs a browser has them in memory.
function rawColumn(packed) {
  const text = atob(packed.data);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; ++i) bytes[i] = text.charCodeAt(i);
  return new kTypes[packed.type][0](bytes.buffer);
}

// NaN where there is no number.
function numbers(packed) {
  const raw = rawColumn(packed);
  if (packed.type === 'f64') return raw;
  const none = kTypes[packed.type][1];
  const values = new Float64Array(raw.length);
  for (let i = 0; i < raw.length; ++i) values[i] = raw[i] === none ? NaN : raw[i] * packed.unit;
  return values;
}

const indices = (packed) => Uint32Array.from(rawColumn(packed), (value) => value * packed.unit);

// --- Words ----------------------------------------------------------------------------------

const formatCount = (value) => Math.round(value).toLocaleString('en-US');
const plural = (value, word) => `${formatCount(value)} ${word}${value === 1 ? '' : /[sxh]$/.test(word) ? 'es' : 's'}`;

const kUnits = [['TiB', 2 ** 40], ['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10], ['B', 1]];
const unitOf = (bytes) => kUnits.find(([, size]) => Math.abs(bytes) >= size) ?? kUnits[kUnits.length - 1];

function formatBytes(bytes) {
  const [unit, size] = unitOf(bytes);
  const value = bytes / size;
  return `${size === 1 ? value : value.toFixed(value < 100 ? 2 : 1).replace(/\.?0+$/, '')} ${unit}`;
}
const formatExactly = (bytes) => (bytes < 1024 ? `${bytes} B` : `${formatBytes(bytes)} (${formatCount(bytes)} B)`);
const formatShare = (part, whole) => (whole > 0 ? `${(part / whole * 100).toFixed(1)} %` : '-');

// The least of 1, 2, 5 times a power of ten that cuts `range` into at most `most` parts.
function niceStep(range, most) {
  const power = 10 ** Math.floor(Math.log10(Math.max(range, 1e-9) / Math.max(most, 1)));
  for (const factor of [1, 2, 5]) if (range / (power * factor) <= most) return power * factor;
  return power * 10;
}

// --- Series ---------------------------------------------------------------------------------

// A line of steps: from times[i] on it is values[i].
class Series {
  constructor(times, values) {
    this.times = times;
    this.values = values;
    this.most = 0;
    for (const value of values) if (value > this.most) this.most = value;
  }
  // One value a tick.
  static ofTicks(values) {
    return new Series(Float64Array.from(values, (_, tick) => tick), values);
  }
  indexAt(time) {
    let low = 0, high = this.times.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.times[middle] <= time) low = middle + 1; else high = middle;
    }
    return low - 1;
  }
  at(time) {
    const index = this.indexAt(time);
    return index < 0 ? 0 : this.values[index];
  }
}

// --- Views ----------------------------------------------------------------------------------

const kOutcomes = [
  ['not known', '#9498a0'], ['as planned', '#3ca951'], ['in a larger place', '#6cc5b0'],
  ['lent: other bytes of the arena', '#97bbf5'], ['missed: unlike the plan', '#ff725c'],
  ['missed: bytes still in use', '#efb118'], ['missed: lane without a plan', '#a463f2'], ['unplanned: pool', '#9498a0'],
];

// Blocks over time and where allocators put them.
class View {
  constructor(data, names) {
    this.label = data.label;
    this.time = data.time;
    this.unit = data.unit;
    this.kinds = [['module', 'module'], ['op', data.opWord], ['phase', 'phase'], ['role', 'role']];
    this.first = data.first;
    this.period = Math.max(data.period, 1);
    this.bound = data.bound;
    this.count = data.count;
    this.names = names;
    this.marks = numbers(data.marks);
    this.birth = numbers(data.birth);
    this.end = numbers(data.length).map((length, i) => length + this.birth[i]);
    this.bytes = numbers(data.bytes);
    this.requested = numbers(data.requested);
    this.lane = indices(data.lane);
    this.of = {module: indices(data.module), op: indices(data.op), phase: indices(data.phase), role: indices(data.role)};
    this.layouts = data.layouts.map((layout) => ({
      ...layout,
      addresses: layout.addresses && numbers(layout.addresses),
      breaks: layout.breaks && numbers(layout.breaks),
      reserved: layout.reserved ? Series.ofTicks(numbers(layout.reserved)) : null,
      outcomes: layout.outcomes ? indices(layout.outcomes) : null,
    }));
    this.recorded = data.recorded ? Series.ofTicks(numbers(data.recorded)) : null;
    this.live = this.sumLive();
    this.findPeak();
  }

  // Bytes alive over time. At one time ends come before births.
  sumLive() {
    const {count, birth, end, bytes, period} = this;
    const ends = new Float64Array(count);
    let now = 0;
    for (let i = 0; i < count; ++i) {
      ends[i] = end[i];
      if (end[i] <= period) continue;
      ends[i] -= period;
      now += bytes[i];
    }
    const order = Uint32Array.from(ends, (_, i) => i).sort((a, b) => ends[a] - ends[b]);
    const times = [0], values = [now];
    for (let b = 0, d = 0; b < count || d < count;) {
      const time = Math.min(b < count ? birth[b] : Infinity, d < count ? ends[order[d]] : Infinity);
      for (; d < count && ends[order[d]] === time; ++d) now -= bytes[order[d]];
      for (; b < count && birth[b] === time; ++b) now += bytes[b];
      if (time >= period) break;
      if (times[times.length - 1] === time) values[values.length - 1] = now;
      else { times.push(time); values.push(now); }
    }
    return new Series(Float64Array.from(times), Float64Array.from(values));
  }

  findPeak() {
    this.peakTime = this.live.times[this.live.values.indexOf(this.live.most)] ?? 0;
    this.atPeak = new Uint8Array(this.count);
    for (let i = 0; i < this.count; ++i) this.atPeak[i] = this.isAlive(i, this.peakTime) ? 1 : 0;
  }

  isAlive(i, time) {
    return (this.birth[i] <= time && time < this.end[i]) || time < this.end[i] - this.period;
  }

  nameOf(kind, i) { return this.names[this.of[kind][i]]; }
  has(kind) { return this.of[kind].some((name) => name !== 0); }

  // What a block is called where there is little room.
  shortName(i) {
    const op = this.nameOf('op', i), module = this.nameOf('module', i);
    return (op || module || this.nameOf('role', i)).replace(/^aten::/, '');
  }

  stepAt(time) {
    let step = 0;
    while (step < this.marks.length && this.marks[step] <= time) ++step;
    return step;
  }

  // [what, value] of a block, for people.
  describe(i, layout) {
    const rows = [];
    const time = (at) => formatCount(at + this.first);
    for (const [kind, word] of this.kinds)
      if (this.of[kind][i]) rows.push([word, this.nameOf(kind, i)]);
    rows.push(['size', formatExactly(this.bytes[i])]);
    if (this.requested[i] !== this.bytes[i]) rows.push(['asked for', `${formatCount(this.requested[i])} B`]);
    const end = this.end[i];
    const until = end > this.period ? `${time(end - this.period)} of the next`
      : end >= this.period && this.birth[i] > 0 ? `the end` : time(end);
    rows.push(['alive', `${time(this.birth[i])} to ${until} (${plural(end - this.birth[i], this.unit)})`]);
    if (this.marks.length > 1) rows.push(['step', formatCount(this.stepAt(this.birth[i]) + 1)]);
    if (this.lane.some((lane) => lane !== this.lane[0])) rows.push(['lane', String(this.lane[i])]);
    if (layout) {
      rows.push(['address', this.placeOf(i, layout)]);
      if (layout.outcomes) rows.push(['served', kOutcomes[layout.outcomes[i]][0]]);
    }
    return rows;
  }

  // Hits, buckets and loans lie in berth's arena; of other layouts all has an address of its own.
  inArena(i, layout) { return !layout.outcomes || (layout.outcomes[i] >= 1 && layout.outcomes[i] <= 3); }

  placeOf(i, layout) {
    const address = layout.addresses[i];
    if (Number.isNaN(address)) return 'none';
    if (!this.inArena(i, layout)) return 'in the pool, whose pages move: drawn where it fits';
    return formatExactly(address);
  }

  // Who holds the peak, by a kind of name: [{id, name, bytes, blocks}], largest first.
  holders(kind) {
    const sums = new Map();
    for (let i = 0; i < this.count; ++i) {
      if (!this.atPeak[i]) continue;
      const id = this.of[kind][i];
      const sum = sums.get(id) ?? {id, name: this.names[id] || '(not known)', bytes: 0, blocks: 0};
      sum.bytes += this.bytes[i];
      ++sum.blocks;
      sums.set(id, sum);
    }
    return [...sums.values()].sort((a, b) => b.bytes - a.bytes);
  }

  largestAtPeak(most) {
    const held = [];
    for (let i = 0; i < this.count; ++i) if (this.atPeak[i]) held.push(i);
    return held.sort((a, b) => this.bytes[b] - this.bytes[a]).slice(0, most);
  }
}
