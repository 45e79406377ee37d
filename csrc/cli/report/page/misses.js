// The second tab: how the requests of a run were served, and why some missed.

function missesTab(panel, statistics, view) {
  panel.replaceChildren();
  if (!statistics) {
    panel.append(element('section', '', 'Not known of this input. Shown for a run\u2019s trace, for a trace with --plan, and for the statistics of a run (BERTH_STATS).'));
    return;
  }
  const rows = [
    [1, 'hits'], [2, 'hits_bucket'], [3, 'lent'], [4, 'misses_size'], [5, 'misses_busy'], [6, 'misses_lane'], [7, 'unplanned'],
  ].map(([outcome, field]) => ({outcome, count: statistics[field] ?? 0}));
  const all = statistics.requests ?? 0;

  const served = element('section');
  served.append(element('h2', '', `How ${plural(all, 'request')} were served`));
  const bar = element('div', 'share');
  for (const {outcome, count} of rows) {
    const part = element('i');
    part.style.width = `${all > 0 ? count / all * 100 : 0}%`;
    part.style.background = kOutcomes[outcome][1];
    part.title = kOutcomes[outcome][0];
    bar.append(part);
  }
  const table = element('table'), body = element('tbody');
  for (const {outcome, count} of rows) {
    const row = element('tr'), name = element('td'), square = element('i');
    square.style.background = kOutcomes[outcome][1];
    name.append(square, kOutcomes[outcome][0]);
    row.append(name, element('td', 'number', formatCount(count)), element('td', 'number', formatShare(count, all)));
    body.append(row);
  }
  table.append(body);
  served.append(bar, table);
  panel.append(served);

  const list = (title, lines, kind) => {
    if (!lines?.length) return;
    const section = element('section'), items = element(kind);
    section.append(element('h2', '', title));
    for (const line of lines) items.append(element('li', '', line));
    section.append(items);
    panel.append(section);
  };
  list('The most frequent misses', statistics.sentences, 'ol');
  list('What to do', statistics.advice, 'ul');

  const layout = view?.layouts.find((one) => one.outcomes);
  if (layout && view.marks.length > 1) {
    const section = element('section'), holder = element('div', 'steps');
    section.append(element('h2', '', 'Requests by step'));
    holder.append(element('canvas', 'base'));
    section.append(holder);
    panel.append(section);
    return new StepsChart(holder, view, layout.outcomes);
  }
  return null;
}

// Requests of each step, by how they were served; many steps to a column are summed.
class StepsChart extends Plot {
  constructor(holder, view, outcomes) {
    super(holder);
    this.view = view;
    this.margin = {...kMargin, top: 8, bottom: 36};
    const steps = view.marks.length + (view.marks[view.marks.length - 1] < view.period ? 1 : 0);
    this.counts = Array.from({length: steps}, () => new Uint32Array(kOutcomes.length));
    for (let i = 0, step = 0; i < view.count; ++i) {
      while (step < view.marks.length && view.marks[step] <= view.birth[i]) ++step;
      ++this.counts[step][outcomes[i]];
    }
  }
  draw() {
    if (!this.fit()) return;
    const {pen, plot, counts} = this;
    const group = Math.ceil(counts.length / (plot.w / 3));
    const bars = [];
    for (let at = 0; at < counts.length; at += group) {
      const sum = new Float64Array(kOutcomes.length);
      for (const step of counts.slice(at, at + group)) step.forEach((count, k) => { sum[k] += count / group; });
      bars.push(sum);
    }
    const top = Math.max(1, ...bars.map((bar) => bar.reduce((a, b) => a + b)));
    const width = Math.min(plot.w / bars.length, 60);
    const scale = niceStep(top, 3);
    pen.textAlign = 'right';
    pen.textBaseline = 'middle';
    for (let value = 0; value <= top; value += scale) {
      const y = plot.y + plot.h - value / top * plot.h;
      pen.fillStyle = themeColour('--grid');
      pen.fillRect(plot.x, y - 0.5, plot.w, 1);
      pen.fillStyle = themeColour('--quiet');
      pen.fillText(formatCount(value), plot.x - 7, y);
    }
    for (const [k, bar] of bars.entries()) {
      let y = plot.y + plot.h;
      bar.forEach((count, outcome) => {
        const h = count / top * plot.h;
        pen.fillStyle = kOutcomes[outcome][1];
        pen.fillRect(plot.x + k * width, y - h, Math.max(width - (width > 4 ? 1 : 0), 1), h);
        y -= h;
      });
    }
    const step = Math.max(1, niceStep(counts.length, 10));
    pen.fillStyle = themeColour('--quiet');
    pen.textAlign = 'center';
    pen.textBaseline = 'top';
    for (let at = 0; at < counts.length; at += step)
      pen.fillText(formatCount(at + 1), plot.x + (at / group + 0.5) * width, plot.y + plot.h + 5);
    pen.fillText(group > 1 ? `step, means of ${group}` : 'step', plot.x + plot.w / 2, plot.y + plot.h + 20);
  }
}
