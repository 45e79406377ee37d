// Which colour a block has: classes with a label, a colour and a test.

// Observable's ten, without its grey: told apart on light and on dark, and by the colour-blind in order.
const kNamed = ['#4269d0', '#efb118', '#ff725c', '#6cc5b0', '#3ca951', '#ff8ab7', '#a463f2', '#97bbf5', '#9c6b4e'];
const kOther = '#9498a0', kUnknown = '#b9bec8';
// Viridis, as in the pictures of --svg.
const kOrdered = ['#f2d732', '#93cf46', '#37b678', '#21918c', '#31688e', '#453882', '#44125c'];

function roundLimit(value) {
  const digit = 10 ** Math.max(0, Math.floor(Math.log10(Math.max(value, 10))) - 1);
  return Math.round(value / digit) * digit;
}

// Classes by upper limits: [{label, colour}] and the class of each block.
function byLimits(view, values, limits, label) {
  const of = new Uint16Array(view.count);
  for (let i = 0; i < view.count; ++i) {
    let c = 0;
    while (c < limits.length && values(i) > limits[c]) ++c;
    of[i] = c;
  }
  const classes = limits.map((limit, c) => ({label: `to ${label(limit)}`, colour: kOrdered[c]}));
  classes.push({label: 'longer', colour: kOrdered[limits.length]});
  return {classes, of};
}

function byLifetime(view) {
  let longest = 1;
  for (let i = 0; i < view.count; ++i) longest = Math.max(longest, view.end[i] - view.birth[i]);
  const limits = [2];
  for (const share of [0.02, 0.1, 0.25, 0.5, 0.75])
    limits.push(Math.max(limits[limits.length - 1] + 1, roundLimit(share * longest)));
  return byLimits(view, (i) => view.end[i] - view.birth[i], limits, (limit) => plural(limit, view.unit));
}

function bySize(view) {
  const result = byLimits(view, (i) => view.bytes[i], [2 ** 10, 2 ** 14, 2 ** 18, 2 ** 20, 2 ** 24, 2 ** 28], formatBytes);
  result.classes[result.classes.length - 1].label = 'larger';
  return result;
}

// The names that hold most, over time, have a colour each.
function byName(view, kind) {
  const ids = view.of[kind], weight = new Map();
  for (let i = 0; i < view.count; ++i)
    weight.set(ids[i], (weight.get(ids[i]) ?? 0) + view.bytes[i] * (view.end[i] - view.birth[i]));
  const named = [...weight.keys()].filter((id) => id !== 0).sort((a, b) => weight.get(b) - weight.get(a));
  const own = kNamed.length, others = Math.max(0, named.length - own);
  const classes = named.slice(0, own).map((id, c) => ({label: view.names[id], colour: kNamed[c]}));
  // The others share the colours, paler; one line of the legend stands for them.
  for (let c = 0; c < Math.min(others, own); ++c)
    classes.push({label: `${plural(others, 'other')}, paler`, colour: mixed(kNamed[(own - 1 - c) % own], kOther, 0.55), others: true});
  if (weight.has(0)) classes.push({label: 'not known', colour: kUnknown});
  const place = new Map(named.map((id, c) => [id, c < own ? c : own + (c - own) % own]));
  const of = new Uint16Array(view.count);
  for (let i = 0; i < view.count; ++i) of[i] = ids[i] === 0 ? classes.length - 1 : place.get(ids[i]);
  return {classes, of};
}

function byLane(view) {
  const lanes = [...new Set(view.lane)].sort((a, b) => a - b);
  const classes = lanes.map((lane, c) => ({label: `lane ${lane}`, colour: kNamed[c % kNamed.length]}));
  return {classes, of: Uint16Array.from(view.lane, (lane) => lanes.indexOf(lane))};
}

function byOutcome(view) {
  const outcomes = view.layouts.find((layout) => layout.outcomes).outcomes;
  return {classes: kOutcomes.map(([label, colour]) => ({label, colour})), of: Uint16Array.from(outcomes)};
}

// The ways to colour a view: [key, word, make].
function colourings(view) {
  const names = view.kinds.filter(([kind]) => view.has(kind)).map(([kind, word]) => [kind, word, () => byName(view, kind)]);
  // Names that hardly come twice say little in colours.
  const telling = ([kind]) => new Set(view.of[kind]).size <= Math.max(view.count / 2, 1);
  const ways = names.filter(telling);
  ways.push(['life', 'lifetime', () => byLifetime(view)], ['size', 'size', () => bySize(view)]);
  if (view.lane.some((lane) => lane !== view.lane[0])) ways.push(['lane', 'lane', () => byLane(view)]);
  if (view.layouts.some((layout) => layout.outcomes)) ways.push(['outcome', 'how it was served', () => byOutcome(view)]);
  return ways.concat(names.filter((way) => !telling(way)));
}

// --- Numbers of colours ---------------------------------------------------------------------

function channels(hex) { return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)); }
function mixed(one, other, share) {
  const [a, b] = [channels(one), channels(other)];
  return '#' + a.map((value, k) => Math.round(value + (b[k] - value) * share).toString(16).padStart(2, '0')).join('');
}
// As a pixel of ImageData in a little-endian word.
function pixelOf([r, g, b]) { return (255 << 24 | b << 16 | g << 8 | r) >>> 0; }
function isBright([r, g, b]) { return 0.299 * r + 0.587 * g + 0.114 * b > 150; }

// A colour of the theme, from a variable of the style sheet.
function themeColour(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }
