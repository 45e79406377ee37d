// Live and reserved bytes over time, and the strip below that shows which part of the time is looked at.

// The largest and the smallest value in each of `columns` equal parts of [t0, t1).
function columnsOf(series, t0, t1, columns) {
  const high = new Float64Array(columns), low = new Float64Array(columns).fill(Infinity);
  const {times, values} = series;
  let index = Math.max(series.indexAt(t0), 0);
  for (let c = 0; c < columns; ++c) {
    const end = t0 + (t1 - t0) * (c + 1) / columns;
    for (;;) {
      if (times[index] < end) {
        high[c] = Math.max(high[c], values[index]);
        low[c] = Math.min(low[c], values[index]);
      }
      if (index + 1 >= times.length || times[index + 1] >= end) break;
      ++index;
    }
    if (low[c] === Infinity) low[c] = high[c];
  }
  return {high, low};
}

class LinesChart extends Plot {
  constructor(figure, keys) {
    super(figure);
    this.keys = keys;
    this.margin = {...kMargin, top: 6, bottom: 22};
  }

  // What there is to draw of a view.
  lines(view) {
    const lines = [{label: 'alive', colour: '--live', series: view.live, area: true}];
    // Below the others, which may say the same.
    if (view.recorded) lines.push({label: 'the run itself reserved', colour: '--quiet', series: view.recorded});
    for (const [k, layout] of view.layouts.entries())
      if (layout.reserved)
        lines.push({label: k === 0 ? 'berth reserves' : 'PyTorch reserves', colour: k === 0 ? '--berth' : '--torch', series: layout.reserved});
    return lines;
  }

  draw(state, view) {
    this.view = view;
    if (!this.fit()) return;
    const {pen, plot} = this, {window} = state;
    this.top = Math.max(view.bound, 1, ...this.lines(view).map((line) => line.series.most)) * 1.04;
    this.drawBytesAxis(0, this.top);
    this.drawMarks(view, window);
    for (const line of this.lines(view)) this.drawLine(line, window);
    if (view.bound) {
      pen.strokeStyle = themeColour('--ink');
      pen.setLineDash([6, 4]);
      pen.beginPath();
      pen.moveTo(plot.x, this.yOf(view.bound));
      pen.lineTo(plot.x + plot.w, this.yOf(view.bound));
      pen.stroke();
      pen.setLineDash([]);
    }
    const x = this.xOf(view.peakTime + 0.5, window);
    if (x >= plot.x && x <= plot.x + plot.w) {
      pen.fillStyle = themeColour('--peak');
      pen.beginPath();
      pen.arc(x, this.yOf(view.live.most), 4, 0, 7);
      pen.fill();
    }
    const axis = {...view, time: ''};
    this.drawTimeAxis(axis, window);
    pen.strokeStyle = themeColour('--line');
    pen.strokeRect(plot.x - 0.5, plot.y - 0.5, plot.w + 1, plot.h + 1);
    this.showKeys(state);
  }

  yOf(bytes) { return this.plot.y + this.plot.h - bytes / this.top * this.plot.h; }

  drawLine({series, colour, area}, window) {
    const {pen, plot} = this, columns = Math.max(1, Math.round(plot.w));
    const {high, low} = columnsOf(series, window.t0, window.t1, columns);
    const width = plot.w / columns;
    pen.beginPath();
    for (let c = 0; c < columns; ++c) {
      const x = plot.x + c * width;
      if (c === 0) pen.moveTo(x, this.yOf(high[c])); else pen.lineTo(x, this.yOf(high[c]));
      pen.lineTo(x + width, this.yOf(high[c]));
    }
    if (area) {
      const back = new Path2D();
      for (let c = 0; c < columns; ++c) back.rect(plot.x + c * width, this.yOf(high[c]), width + 0.5, plot.y + plot.h - this.yOf(high[c]));
      pen.fillStyle = themeColour('--live-back');
      pen.fill(back);
      // What falls and rises within one column is a darker bar.
      pen.fillStyle = themeColour('--live-back');
      for (let c = 0; c < columns; ++c)
        if (high[c] > low[c]) pen.fillRect(plot.x + c * width, this.yOf(high[c]), width, this.yOf(low[c]) - this.yOf(high[c]));
    }
    pen.strokeStyle = themeColour(colour);
    pen.lineWidth = 1.5;
    pen.stroke();
    pen.lineWidth = 1;
  }

  // The legend, with the values where the mouse is, else the largest.
  showKeys(state) {
    const {view, keys} = this, time = state.hoverTime;
    keys.replaceChildren();
    const key = (label, colour, value, dashed) => {
      const span = element('span');
      const line = element('i', dashed ? 'dashed' : '');
      line.style.borderColor = `var(${colour})`;
      span.append(line, `${label} ${formatBytes(value)}`);
      keys.append(span);
    };
    for (const {label, colour, series} of this.lines(view))
      key(label, colour, time === null ? series.most : series.at(time), false);
    if (view.bound) key('lower bound', '--ink', view.bound, true);
    keys.append(element('span', '', time === null ? 'at most' : `at ${view.unit} ${formatCount(Math.floor(time) + view.first)}`));
  }

  drawOver(state) {
    if (!this.view || !this.plot) return;
    this.clearOver();
    this.drawCross(this.view, state.window, state.hoverTime);
    this.showKeys(state);
  }
}

class Overview extends Plot {
  constructor(holder) {
    super(holder);
    this.margin = {...kMargin, top: 4, bottom: 4};
  }
  draw(state, view) {
    if (!this.fit()) return;
    const {pen, plot} = this, whole = {t0: 0, t1: view.period};
    const columns = Math.round(plot.w), {high} = columnsOf(view.live, 0, view.period, columns);
    pen.fillStyle = themeColour('--live');
    const scale = plot.h / Math.max(view.live.most, 1);
    for (let c = 0; c < columns; ++c) pen.fillRect(plot.x + c, plot.y + plot.h - high[c] * scale, 1, high[c] * scale);
    const x0 = this.xOf(state.window.t0, whole), x1 = Math.max(this.xOf(state.window.t1, whole), x0 + 3);
    pen.globalAlpha = 0.75;
    pen.fillStyle = themeColour('--panel');
    pen.fillRect(plot.x, plot.y, x0 - plot.x, plot.h);
    pen.fillRect(x1, plot.y, plot.x + plot.w - x1, plot.h);
    pen.globalAlpha = 1;
    pen.strokeStyle = themeColour('--accent');
    pen.lineWidth = 1.5;
    pen.strokeRect(x0, plot.y - 1, x1 - x0, plot.h + 2);
    pen.lineWidth = 1;
    this.whole = whole;
  }
}
