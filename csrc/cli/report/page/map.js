// Address over time.
//
// Boxes of one layout never overlap, so painting them into a bitmap of our own costs at most the pixels of the bitmap and
// a moment a box, however many there are: 100,000 take some 10 ms, which no drawing of rectangles one by one does. A
// second bitmap holds the number of the block at each pixel: that is the whole index for the mouse.

const kMargin = {left: 66, right: 14, top: 8, bottom: 36};
const kRatioMost = 2;

// A canvas for what stays and one over it for what follows the mouse, with a plot and its axes.
class Plot {
  constructor(holder) {
    this.base = holder.querySelector('.base');
    this.over = holder.querySelector('.over');
    this.pen = this.base.getContext('2d');
    this.overPen = this.over?.getContext('2d');
    this.margin = kMargin;
  }
  // Fits the canvases to their box; false where there is no room.
  fit() {
    const box = this.base.getBoundingClientRect();
    this.ratio = Math.min(window.devicePixelRatio || 1, kRatioMost);
    this.width = box.width;
    this.height = box.height;
    const {left, right, top, bottom} = this.margin;
    this.plot = {x: left, y: top, w: box.width - left - right, h: box.height - top - bottom};
    if (this.plot.w < 20 || this.plot.h < 20) return false;
    for (const canvas of [this.base, this.over]) {
      if (!canvas) continue;
      const w = Math.round(box.width * this.ratio), h = Math.round(box.height * this.ratio);
      if (canvas.width !== w) canvas.width = w;
      if (canvas.height !== h) canvas.height = h;
      const pen = canvas.getContext('2d');
      pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
      pen.clearRect(0, 0, box.width, box.height);
      pen.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    }
    return true;
  }
  xOf(time, window) { return this.plot.x + (time - window.t0) / (window.t1 - window.t0) * this.plot.w; }
  timeAt(x, window) { return window.t0 + (x - this.plot.x) / this.plot.w * (window.t1 - window.t0); }

  drawTimeAxis(view, window) {
    const {pen, plot} = this, span = window.t1 - window.t0;
    const longest = pen.measureText(formatCount(window.t1 + view.first)).width + 26;
    const step = Math.max(1, niceStep(span, plot.w / Math.max(longest, 70)));
    pen.fillStyle = themeColour('--quiet');
    pen.textAlign = 'center';
    pen.textBaseline = 'top';
    for (let tick = Math.ceil((window.t0 + view.first) / step) * step; tick <= window.t1 + view.first; tick += step) {
      const x = this.xOf(tick - view.first, window);
      const half = pen.measureText(formatCount(tick)).width / 2;
      pen.fillRect(x - 0.5, plot.y + plot.h, 1, 4);
      pen.fillText(formatCount(tick), Math.min(Math.max(x, half + 2), this.width - half - 4), plot.y + plot.h + 6);
    }
    pen.fillText(view.time, plot.x + plot.w / 2, plot.y + plot.h + 20);
  }
  drawBytesAxis(from, to) {
    const {pen, plot} = this;
    const [word, unit] = unitOf(to / 2);
    const step = niceStep((to - from) / unit, Math.max(2, plot.h / 30)) * unit;
    const grid = themeColour('--grid'), ink = themeColour('--quiet');
    pen.textAlign = 'right';
    pen.textBaseline = 'middle';
    for (let value = Math.ceil(from / step) * step; value <= to; value += step) {
      const y = plot.y + plot.h - (value - from) / (to - from) * plot.h;
      pen.fillStyle = grid;
      pen.fillRect(plot.x, y - 0.5, plot.w, 1);
      pen.fillStyle = ink;
      pen.fillText(value === 0 ? '0' : `${+(value / unit).toFixed(3)} ${word}`, plot.x - 7, Math.max(y, 7));
    }
  }
  drawMarks(view, window) {
    const {pen, plot} = this, {marks} = view;
    pen.fillStyle = themeColour('--mark');
    const shown = marks.filter((mark) => mark > window.t0 && mark < window.t1);
    if (shown.length > plot.w / 6) return;
    for (const mark of shown) pen.fillRect(this.xOf(mark, window) - 0.5, plot.y, 1, plot.h);
  }
  drawCross(view, window, time) {
    if (time === null || !this.overPen) return;
    const {overPen: pen, plot} = this, x = this.xOf(time, window);
    if (x < plot.x || x > plot.x + plot.w) return;
    pen.fillStyle = themeColour('--quiet');
    pen.fillRect(x - 0.5, plot.y, 1, plot.h);
  }
  clearOver() { this.overPen.clearRect(0, 0, this.width, this.height); }
}

class AddressMap extends Plot {
  constructor(figure, view, layout) {
    super(figure);
    this.view = view;
    this.layout = layout;
    this.image = null;
  }

  // `state`: window {t0, t1}, colours {pixels, of}, match (a flag a block, or null).
  draw(state, addresses) {
    this.addresses = addresses;
    this.window = state.window;
    if (!this.fit()) return;
    const {pen, plot, ratio, view} = this;
    const w = Math.round(plot.w * ratio), h = Math.round(plot.h * ratio);
    if (!this.image || this.image.width !== w || this.image.height !== h) {
      this.image = pen.createImageData(w, h);
      this.pixels = new Uint32Array(this.image.data.buffer);
      this.blocks = new Int32Array(w * h);
    }
    this.paint(state, w, h);
    pen.putImageData(this.image, Math.round(plot.x * ratio), Math.round(plot.y * ratio));
    this.drawMarks(view, state.window);
    this.drawBytesAxis(addresses.a0, addresses.a1);
    this.drawBreaks();
    this.drawBound();
    this.drawTimeAxis(view, state.window);
    this.drawNames(state);
    pen.strokeStyle = themeColour('--line');
    pen.strokeRect(plot.x - 0.5, plot.y - 0.5, plot.w + 1, plot.h + 1);
  }

  yOf(address) {
    const {plot, addresses: {a0, a1}} = this;
    return plot.y + plot.h - (address - a0) / (a1 - a0) * plot.h;
  }
  addressAt(y) {
    const {plot, addresses: {a0, a1}} = this;
    return a0 + (plot.y + plot.h - y) / plot.h * (a1 - a0);
  }

  paint(state, w, h) {
    const {view, pixels, blocks, layout: {addresses}, addresses: {a0, a1}} = this;
    const {window: {t0, t1}, colours, match} = state;
    const back = pixelOf(channels(themeColour('--plot'))), dim = pixelOf(channels(themeColour('--dim')));
    const sx = w / (t1 - t0), sy = h / (a1 - a0), gap = Math.round(this.ratio), hatch = 5 * gap;
    pixels.fill(back);
    blocks.fill(-1);
    const {birth, end, bytes, period, count} = view;
    // `onTop`: what is thinner than a pixel is painted even where others are.
    const box = (i, from, to, pixel, onTop) => {
      let x0 = Math.round((from - t0) * sx), x1 = Math.round((to - t0) * sx);
      let y1 = h - Math.round((addresses[i] - a0) * sy), y0 = h - Math.round((addresses[i] + bytes[i] - a0) * sy);
      const thin = !onTop && (x1 <= x0 || y1 <= y0);
      if (x1 <= x0) x1 = x0 + 1;
      if (y1 <= y0) y0 = y1 - 1;
      const edge = x1 - x0 > 3 * gap && y1 - y0 > 3 * gap ? gap : 0;
      const right = x1 - edge, top = y0 + edge, hatched = !thin && !this.view.inArena(i, this.layout);
      x0 = Math.max(x0, 0); x1 = Math.min(x1, w); y0 = Math.max(y0, 0); y1 = Math.min(y1, h);
      if (x0 >= x1 || y0 >= y1) return;
      for (let y = y0; y < y1; ++y) {
        const row = y * w;
        if (thin) {
          for (let at = row + x0; at < row + x1; ++at) if (blocks[at] < 0) { blocks[at] = i; pixels[at] = pixel; }
          continue;
        }
        blocks.fill(i, row + x0, row + x1);
        pixels.fill(y < top ? back : pixel, row + x0, row + Math.min(right, x1));
        if (right < x1) pixels.fill(back, row + Math.max(right, x0), row + x1);
        // Hatched: it is drawn where it fits.
        if (hatched) for (let x = x0 + (hatch - (x0 + y) % hatch) % hatch; x < x1; x += hatch) pixels[row + x] = back;
      }
    };
    const all = (wanted, colour, onTop) => {
      for (let i = 0; i < count; ++i) {
        if (birth[i] >= t1 && end[i] <= period) continue;
        if (match && match[i] !== wanted) continue;
        const address = addresses[i];
        if (!(address < a1 && address + bytes[i] > a0)) continue;  // nowhere is NaN
        const pixel = colour ?? colours.pixels[colours.of[i]];
        if (end[i] > t0 && birth[i] < t1) box(i, birth[i], Math.min(end[i], period), pixel, onTop);
        if (end[i] > period && end[i] - period > t0) box(i, 0, end[i] - period, pixel, onTop);
      }
    };
    if (match) {
      all(0, dim, false);
      all(1, null, true);
    } else {
      all(0, null, false);
    }
  }

  // Names in boxes with room for them.
  drawNames(state) {
    const {pen, plot, view} = this, {t0, t1} = state.window;
    const most = 250;
    let drawn = 0;
    pen.textAlign = 'left';
    pen.textBaseline = 'middle';
    for (let i = 0; i < view.count && drawn < most; ++i) {
      if (view.birth[i] >= t1 || view.end[i] <= t0 || (state.match && !state.match[i])) continue;
      const x0 = Math.max(this.xOf(view.birth[i], state.window), plot.x);
      const x1 = Math.min(this.xOf(Math.min(view.end[i], view.period), state.window), plot.x + plot.w);
      if (x1 - x0 < 44) continue;
      const y0 = Math.max(this.yOf(this.layout.addresses[i] + view.bytes[i]), plot.y);
      const y1 = Math.min(this.yOf(this.layout.addresses[i]), plot.y + plot.h);
      if (!(y1 - y0 >= 14)) continue;
      const name = view.shortName(i);
      if (!name) continue;
      const text = fitText(pen, name, x1 - x0 - 10);
      if (!text) continue;
      pen.strokeStyle = state.colours.classes[state.colours.of[i]].colour;
      pen.lineWidth = 4;
      pen.strokeText(text, x0 + 5, (y0 + y1) / 2 + 0.5);
      pen.lineWidth = 1;
      pen.fillStyle = state.colours.bright[state.colours.of[i]] ? '#10151d' : '#ffffff';
      pen.fillText(text, x0 + 5, (y0 + y1) / 2 + 0.5);
      ++drawn;
    }
  }
  drawBreaks() {
    const {pen, plot, layout} = this;
    pen.fillStyle = themeColour('--quiet');
    let last = Infinity;
    for (const at of layout.breaks) {
      const y = this.yOf(at);
      if (y < plot.y || y > plot.y + plot.h || last - y < 3) continue;
      pen.fillRect(plot.x - 5, y - 0.5, 5, 1);
      last = y;
    }
  }
  drawBound() {
    const {pen, plot, view} = this;
    if (!view.bound) return;
    const y = this.yOf(view.bound);
    if (y < plot.y || y > plot.y + plot.h) return;
    pen.strokeStyle = themeColour('--ink');
    pen.setLineDash([6, 4]);
    pen.beginPath();
    pen.moveTo(plot.x, y);
    pen.lineTo(plot.x + plot.w, y);
    pen.stroke();
    pen.setLineDash([]);
  }

  // The block at a point of the canvas, or a thin one beside it; -1 for none.
  pick(x, y) {
    if (!this.image) return -1;
    const {width: w, height: h} = this.image, {ratio, plot} = this;
    const px = Math.floor((x - plot.x) * ratio), py = Math.floor((y - plot.y) * ratio);
    for (let far = 0; far <= 2; ++far)
      for (let dy = -far; dy <= far; ++dy)
        for (let dx = -far; dx <= far; ++dx) {
          if (Math.max(Math.abs(dx), Math.abs(dy)) !== far) continue;
          const qx = px + dx, qy = py + dy;
          if (qx < 0 || qy < 0 || qx >= w || qy >= h) continue;
          const block = this.blocks[qy * w + qx];
          if (block >= 0) return block;
        }
    return -1;
  }

  drawOver(state) {
    if (!this.image) return;
    this.clearOver();
    this.drawCross(this.view, state.window, state.hoverTime);
    if (state.selected >= 0) this.outline(state.selected, themeColour('--ink'), 2.5);
    if (state.hovered >= 0) this.outline(state.hovered, themeColour('--ink'), 1.5);
  }
  outline(i, colour, width) {
    const {overPen: pen, plot, view, window} = this, address = this.layout.addresses[i];
    if (Number.isNaN(address)) return;
    pen.save();
    pen.beginPath();
    pen.rect(plot.x - 2, plot.y - 2, plot.w + 4, plot.h + 4);
    pen.clip();
    const piece = (from, to) => {
      const x0 = this.xOf(from, window), x1 = this.xOf(to, window);
      const y1 = this.yOf(address), y0 = this.yOf(address + view.bytes[i]);
      const sides = [x0 - 1, y0 - 1, Math.max(x1 - x0, 2) + 2, Math.max(y1 - y0, 2) + 2];
      pen.lineWidth = width + 2;
      pen.strokeStyle = themeColour('--plot');
      pen.strokeRect(...sides);
      pen.lineWidth = width;
      pen.strokeStyle = colour;
      pen.strokeRect(...sides);
    };
    piece(view.birth[i], Math.min(view.end[i], view.period));
    if (view.end[i] > view.period) piece(0, view.end[i] - view.period);
    pen.restore();
  }
}

// The text, cut to a width; empty where hardly anything is left.
function fitText(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let length = Math.floor(text.length * width / pen.measureText(text).width);
  while (length > 2 && pen.measureText(text.slice(0, length) + '\u2026').width > width) --length;
  return length > 2 ? text.slice(0, length) + '\u2026' : '';
}
