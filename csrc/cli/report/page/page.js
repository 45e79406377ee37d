// The page: what is shown, and what mouse and keys do to it.

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}
const byId = (id) => document.getElementById(id);

class Page {
  constructor(data) {
    this.data = data;
    this.views = [];
    this.state = {window: {t0: 0, t1: 1}, colours: null, match: null, hoverTime: null, hovered: -1, selected: -1};
    this.dirty = {base: false, over: false};
    this.showHead();
    this.setTabs();
    if (data.views.length > 0) {
      this.lines = new LinesChart(byId('lines'), byId('line-keys'));
      this.overview = new Overview(byId('overview'));
      this.setControls();
      this.showView(0);
      this.listen();
    }
    this.steps = missesTab(byId('misses'), data.statistics, this.view);
    this.showTab(data.views.length > 0 ? 'memory' : 'misses');
  }

  showHead() {
    const {title, about, facts} = this.data;
    document.title = `${title} - berth`;
    byId('title').textContent = title;
    byId('about').textContent = about;
    for (const {what, value, more} of facts) {
      const card = element('div');
      card.append(element('dt', '', what), element('dd', 'value', value), element('dd', '', more));
      byId('facts').append(card);
    }
  }

  // --- Tabs, theme, help ---------------------------------------------------------------------

  setTabs() {
    for (const name of ['memory', 'misses']) {
      const tab = byId(`tab-${name}`);
      tab.addEventListener('click', () => this.showTab(name));
      tab.addEventListener('keydown', (event) => {
        if (event.key !== 'ArrowLeft' && event.key !== 'ArrowRight') return;
        event.stopPropagation();
        const other = name === 'memory' ? 'misses' : 'memory';
        this.showTab(other);
        byId(`tab-${other}`).focus();
      });
    }
    byId('tab-memory').disabled = this.data.views.length === 0;
    const themes = ['auto', 'light', 'dark'];
    const turn = () => {
      const now = document.documentElement.dataset.theme ?? 'auto';
      const next = themes[(themes.indexOf(now) + 1) % themes.length];
      document.documentElement.dataset.theme = next;
      byId('theme').textContent = `Theme: ${next}`;
      this.redraw();
    };
    this.turnTheme = turn;
    byId('theme').addEventListener('click', turn);
    byId('help-open').addEventListener('click', () => byId('help').showModal());
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.redraw());
    document.addEventListener('keydown', (event) => this.key(event));
    new ResizeObserver(() => this.redraw()).observe(document.body);
    // A print has both tabs, and canvases that fit its paper.
    window.addEventListener('beforeprint', () => {
      byId('memory').hidden = this.data.views.length === 0;
      byId('misses').hidden = !this.data.statistics;
      this.drawNow();
    });
    window.addEventListener('afterprint', () => this.showTab(this.tab));
  }

  showTab(name) {
    if (name === 'memory' && this.data.views.length === 0) return;
    this.tab = name;
    for (const one of ['memory', 'misses']) {
      byId(one).hidden = one !== name;
      byId(`tab-${one}`).setAttribute('aria-selected', String(one === name));
      byId(`tab-${one}`).tabIndex = one === name ? 0 : -1;
    }
    this.hideTip();
    this.redraw();
  }

  // --- Views ---------------------------------------------------------------------------------

  setControls() {
    const choice = byId('view-choice');
    this.data.views.forEach((view, k) => choice.append(new Option(view.label, k)));
    choice.parentElement.hidden = this.data.views.length < 2;
    choice.addEventListener('change', () => this.showView(Number(choice.value)));
    byId('layout-choice').addEventListener('change', () => this.showLayouts());
    byId('colour-choice').addEventListener('change', () => this.colour());
    const search = byId('search');
    search.addEventListener('input', () => this.search(search.value));
    search.addEventListener('keydown', (event) => {
      if (event.key === 'Enter') this.nextMatch(event.shiftKey ? -1 : 1);
    });
    byId('chip-clear').addEventListener('click', () => this.highlight(null));
    byId('zoom-in').addEventListener('click', () => this.zoom(0.5));
    byId('zoom-out').addEventListener('click', () => this.zoom(2));
    byId('zoom-fit').addEventListener('click', () => this.showAll());
    byId('zoom-peak').addEventListener('click', () => this.showPeak());
  }

  showView(k) {
    this.view = this.views[k] ??= new View(this.data.views[k], this.data.names);
    this.state.selected = this.state.hovered = -1;
    const layouts = byId('layout-choice');
    layouts.replaceChildren(...(this.view.layouts.length > 1 ? [new Option('side by side', 'all')] : []),
      ...this.view.layouts.map((layout, i) => new Option(layout.label, i)));
    layouts.parentElement.hidden = this.view.layouts.length < 2;
    const colours = byId('colour-choice'), kept = colours.value;
    this.ways = colourings(this.view);
    colours.replaceChildren(...this.ways.map(([key, word]) => new Option(word, key)));
    if (this.ways.some(([key]) => key === kept)) colours.value = kept;
    this.span = Math.max(this.view.bound, 1, ...this.view.layouts.map((layout) => layout.span ?? 0)) * 1.02;
    this.colour();
    this.showLayouts();
    this.showHolderKinds();
    this.highlight(null);
    this.showDetails();
    this.showAll();
  }

  showLayouts() {
    const choice = byId('layout-choice').value, maps = byId('maps');
    this.maps = [];
    maps.replaceChildren();
    this.view.layouts.forEach((layout, k) => {
      if (choice !== 'all' && Number(choice) !== k) return;
      const figure = element('figure', 'map'), caption = element('figcaption');
      caption.append(element('b', '', layout.label));
      figure.append(caption);
      maps.append(figure);
      if (layout.missing) {
        figure.append(element('p', 'missing', layout.missing));
        return;
      }
      const reserved = layout.reserved?.most ?? layout.arena;
      caption.append(element('span', 'quiet', layout.reserved
        ? `reserves ${formatBytes(reserved)}, ${(reserved / Math.max(this.view.live.most, 1)).toFixed(3)} x alive`
        : `${formatBytes(reserved)}`));
      if (layout.note) caption.append(element('span', 'quiet', layout.note));
      const holder = element('div', 'canvas'), over = element('canvas', 'over');
      over.tabIndex = 0;
      over.setAttribute('role', 'img');
      over.setAttribute('aria-label', `Address over time: ${layout.label}. Period and comma go from block to block.`);
      holder.append(element('canvas', 'base'), over);
      figure.append(holder);
      const map = new AddressMap(figure, this.view, layout);
      map.addresses = {a0: 0, a1: this.span};
      this.maps.push(map);
      this.listenTo(map);
    });
    this.redraw();
  }

  colour() {
    const [, word, make] = this.ways.find(([key]) => key === byId('colour-choice').value) ?? this.ways[0];
    const {classes, of} = make();
    const pixels = Uint32Array.from(classes, ({colour}) => pixelOf(channels(colour)));
    this.state.colours = {classes, of, pixels, bright: classes.map(({colour}) => isBright(channels(colour)))};
    const held = new Float64Array(classes.length), used = new Uint8Array(classes.length);
    for (let i = 0; i < this.view.count; ++i) {
      used[of[i]] = 1;
      if (this.view.atPeak[i]) held[of[i]] += this.view.bytes[i];
    }
    byId('legend-title').textContent = `Colours: ${word}`;
    const items = [];
    // What is `others` has one line.
    const first = classes.findIndex(({others}) => others);
    const inLine = (c, line) => c === line || (line === first && classes[c].others);
    classes.forEach(({label, colour}, line) => {
      if ((classes[line].others && line !== first) || !classes.some((_, c) => inLine(c, line) && used[c])) return;
      const bytes = held.reduce((sum, value, c) => sum + (inLine(c, line) ? value : 0), 0);
      const button = element('button'), square = element('i');
      button.type = 'button';
      button.title = `${label}: highlight`;
      square.style.background = colour;
      button.append(square, element('span', '', label), element('b', '', bytes > 0 ? formatBytes(bytes) : ''));
      button.addEventListener('click', () => this.highlight({label, test: (i) => inLine(of[i], line)}));
      const item = element('li');
      item.append(button);
      items.push(item);
    });
    byId('legend').replaceChildren(...items);
    this.redraw();
  }

  // --- Highlight and search ------------------------------------------------------------------

  // `what`: {label, test} of blocks, or null for all.
  highlight(what, fromSearch = false) {
    const {view, state} = this;
    state.match = null;
    this.matches = [];
    if (!fromSearch) byId('search').value = '';
    byId('chip').hidden = what === null;
    if (what !== null) {
      state.match = new Uint8Array(view.count);
      let held = 0;
      for (let i = 0; i < view.count; ++i) {
        if (!what.test(i)) continue;
        state.match[i] = 1;
        this.matches.push(i);
        if (view.atPeak[i]) held += view.bytes[i];
      }
      byId('chip-text').textContent = `${what.label}: ${plural(this.matches.length, 'block')}, ${formatBytes(held)} at the peak`;
    }
    for (const row of document.querySelectorAll('#holders tr.chosen')) row.classList.remove('chosen');
    this.redraw();
  }

  search(text) {
    const wanted = text.trim().toLowerCase();
    if (!wanted) { this.highlight(null, true); return; }
    const {view} = this, found = view.names.map((name) => name.toLowerCase().includes(wanted));
    found[0] = false;
    const kinds = Object.values(view.of);
    this.highlight({label: `\u201c${text.trim()}\u201d`, test: (i) => kinds.some((names) => found[names[i]])}, true);
  }

  nextMatch(by) {
    if (this.matches.length === 0) return;
    const at = this.matches.indexOf(this.state.selected);
    const next = at < 0 ? (by > 0 ? 0 : this.matches.length - 1) : (at + by + this.matches.length) % this.matches.length;
    this.select(this.matches[next]);
    this.bringIntoView(this.matches[next]);
  }

  // --- Who holds the peak --------------------------------------------------------------------

  showHolderKinds() {
    const {view} = this;
    const kinds = view.kinds.filter(([kind]) => view.has(kind));
    kinds.push(['block', 'block']);
    byId('peak-about').textContent = `${formatBytes(view.live.most)} at ${view.unit} ${formatCount(view.peakTime + view.first)}` +
      (view.marks.length > 1 ? `, step ${formatCount(view.stepAt(view.peakTime) + 1)}` : '');
    byId('holder-kinds').replaceChildren(...kinds.map(([kind, word]) => {
      const button = element('button', '', word[0].toUpperCase() + word.slice(1));
      button.type = 'button';
      button.dataset.kind = kind;
      button.addEventListener('click', () => this.showHolders(kind));
      return button;
    }));
    this.showHolders(kinds[0][0]);
  }

  showHolders(kind) {
    const {view} = this, most = 60;
    for (const button of byId('holder-kinds').children) button.setAttribute('aria-pressed', String(button.dataset.kind === kind));
    const [head, body] = [byId('holders').tHead, byId('holders').tBodies[0]];
    const titles = element('tr');
    titles.append(element('th', '', kind === 'block' ? 'block' : 'name'), element('th', 'number', 'bytes'),
      element('th', 'number', kind === 'block' ? 'born at' : 'blocks'));
    head.replaceChildren(titles);
    const rows = kind === 'block'
      ? view.largestAtPeak(most).map((i) => ({
        name: view.nameOf('op', i) || view.nameOf('module', i) || '(not known)',
        bytes: view.bytes[i], last: formatCount(view.birth[i] + view.first),
        go: () => { this.select(i); this.bringIntoView(i); },
      }))
      : view.holders(kind).map(({id, name, bytes, blocks}) => ({
        name, bytes, last: formatCount(blocks),
        go: () => this.highlight({label: name, test: (i) => view.of[kind][i] === id}),
      }));
    body.replaceChildren(...rows.slice(0, most).map(({name, bytes, last, go}) => {
      const row = element('tr'), cell = element('td', '', name), bar = element('i', 'bar');
      bar.style.width = `${bytes / Math.max(rows[0].bytes, 1) * 100}%`;
      cell.append(bar);
      row.append(cell, element('td', 'number', formatBytes(bytes)), element('td', 'number', last));
      row.tabIndex = 0;
      row.title = formatShare(bytes, view.live.most) + ' of the peak';
      const act = () => { go(); row.classList.add('chosen'); };
      row.addEventListener('click', act);
      row.addEventListener('keydown', (event) => { if (event.key === 'Enter') act(); });
      return row;
    }));
    if (rows.length > most) {
      const row = element('tr');
      row.append(element('td', 'quiet', `${formatCount(rows.length - most)} more`));
      body.append(row);
    }
  }

  // --- One block -----------------------------------------------------------------------------

  select(i) {
    this.state.selected = i;
    this.showDetails();
    this.dirtyOver();
  }

  showDetails() {
    const i = this.state.selected, details = byId('details');
    details.replaceChildren();
    if (i < 0) {
      details.append(element('h2', '', 'Block'), element('p', 'quiet', 'Point at a box for what it is. Click it, and it stays here.'));
      return;
    }
    details.append(element('h2', '', 'Block'), this.description(i, null));
  }

  // A heading and a list; of one layout, or with the addresses of all.
  description(i, layout) {
    const {view} = this, made = element('div'), list = element('dl');
    made.append(element('strong', '', view.shortName(i) || `block of ${view.unit} ${formatCount(view.birth[i] + view.first)}`));
    const rows = view.describe(i, layout);
    if (!layout) {
      for (const one of view.layouts) {
        if (one.missing) continue;
        rows.push([`in ${one.label.split(',')[0].replace(/\u2019s caching allocator|'s caching allocator/, '')}`,
          view.placeOf(i, one)]);
        if (one.outcomes) rows.push(['served', kOutcomes[one.outcomes[i]][0]]);
      }
    }
    for (const [what, value] of rows) list.append(element('dt', '', what), element('dd', '', value));
    made.append(list);
    return made;
  }

  showTip(i, layout, x, y) {
    const tip = byId('tip');
    tip.replaceChildren(this.description(i, layout));
    tip.hidden = false;
    const {width, height} = tip.getBoundingClientRect();
    tip.style.left = `${x + 16 + width < innerWidth ? x + 16 : Math.max(4, x - 16 - width)}px`;
    tip.style.top = `${y + 16 + height < innerHeight ? y + 16 : Math.max(4, y - 16 - height)}px`;
  }
  hideTip() { byId('tip').hidden = true; }

  // --- Zoom and pan --------------------------------------------------------------------------

  setWindow(t0, t1) {
    const {period} = this.view, least = Math.min(period, 4);
    let span = Math.min(Math.max(t1 - t0, least), period);
    let from = Math.min(Math.max(t1 - t0 < least ? (t0 + t1 - span) / 2 : t0, 0), period - span);
    this.state.window = {t0: from, t1: from + span};
    this.redraw();
  }
  setAddresses(map, a0, a1) {
    const span = Math.min(Math.max(a1 - a0, 256), this.span);
    const from = Math.min(Math.max(a0, 0), this.span - span);
    map.addresses = {a0: from, a1: from + span};
    this.redraw();
  }
  showAll() {
    for (const map of this.maps) map.addresses = {a0: 0, a1: this.span};
    this.setWindow(0, this.view.period);
  }
  showPeak() {
    const {view} = this, span = Math.min(view.period, Math.max(view.period / 200, 120));
    for (const map of this.maps) map.addresses = {a0: 0, a1: this.span};
    this.setWindow(view.peakTime - span / 2, view.peakTime + span / 2);
  }
  zoom(factor, around = (this.state.window.t0 + this.state.window.t1) / 2) {
    const {t0, t1} = this.state.window;
    if (factor > 1 && t1 - t0 >= this.view.period) return;
    this.setWindow(around - (around - t0) * factor, around + (t1 - around) * factor);
  }
  zoomAddresses(map, factor, around) {
    const {a0, a1} = map.addresses;
    this.setAddresses(map, around - (around - a0) * factor, around + (a1 - around) * factor);
  }
  move(share) {
    const {t0, t1} = this.state.window, by = (t1 - t0) * share;
    this.setWindow(t0 + by, t1 + by);
  }
  moveAddresses(share) {
    for (const map of this.maps) {
      const {a0, a1} = map.addresses, by = (a1 - a0) * share;
      this.setAddresses(map, a0 + by, a1 + by);
    }
  }
  showStep(by) {
    const {view, state} = this;
    if (view.marks.length === 0) return;
    const edges = [...new Set([0, ...view.marks, view.period])];
    const middle = (state.window.t0 + state.window.t1) / 2;
    const whole = state.window.t1 - state.window.t0 >= view.period;
    const now = whole ? (by > 0 ? -1 : edges.length - 1) : edges.findLastIndex((edge) => edge <= middle);
    const next = Math.min(Math.max(now + by, 0), edges.length - 2);
    this.setWindow(edges[next], edges[next + 1]);
  }
  // The block with some time around it.
  zoomTo(map, i) {
    const {view} = this, end = Math.min(view.end[i], view.period), length = end - view.birth[i];
    this.setWindow(view.birth[i] - length * 0.3 - 1, end + length * 0.3 + 1);
    const address = map.layout.addresses[i], size = view.bytes[i];
    if (!Number.isNaN(address)) this.setAddresses(map, address - size * 2.5, address + size * 3.5);
  }
  bringIntoView(i) {
    const {view, state: {window}} = this, end = Math.min(view.end[i], view.period);
    if (end > window.t0 && view.birth[i] < window.t1) return;
    const span = window.t1 - window.t0, middle = (view.birth[i] + end) / 2;
    this.setWindow(middle - span / 2, middle + span / 2);
  }

  // --- Mouse ---------------------------------------------------------------------------------

  listen() {
    this.listenTo(this.lines);
    const strip = this.overview.base;
    const centre = (event) => {
      if (!this.overview.whole) return;
      const {t0, t1} = this.state.window;
      const at = this.overview.timeAt(event.clientX - strip.getBoundingClientRect().left, this.overview.whole);
      if (t1 - t0 >= this.view.period) this.setWindow(at - this.view.period / 20, at + this.view.period / 20);
      else this.setWindow(at - (t1 - t0) / 2, at + (t1 - t0) / 2);
    };
    strip.addEventListener('pointerdown', (event) => { strip.setPointerCapture(event.pointerId); centre(event); });
    strip.addEventListener('pointermove', (event) => { if (strip.hasPointerCapture(event.pointerId)) centre(event); });
    strip.addEventListener('wheel', (event) => { event.preventDefault(); this.zoom(2 ** (event.deltaY / 300)); }, {passive: false});
  }

  // A map, or the lines, which have no addresses to move in.
  listenTo(plot) {
    const {over} = plot, isMap = plot instanceof AddressMap;
    let grip = null;
    const place = (event) => {
      const box = over.getBoundingClientRect();
      return {x: event.clientX - box.left, y: event.clientY - box.top};
    };
    over.addEventListener('pointerdown', (event) => {
      if (event.button !== 0 || !plot.plot) return;
      over.setPointerCapture(event.pointerId);
      grip = {...place(event), window: this.state.window, addresses: plot.addresses, box: event.shiftKey, moved: false};
    });
    over.addEventListener('pointermove', (event) => {
      if (!plot.plot) return;
      const {x, y} = place(event), {state} = this;
      state.hoverTime = x >= plot.plot.x && x <= plot.plot.x + plot.plot.w ? plot.timeAt(x, state.window) : null;
      if (grip && (grip.moved || Math.hypot(x - grip.x, y - grip.y) > 3)) {
        grip.moved = true;
        this.hideTip();
        if (grip.box) {
          this.rubber = {plot, x0: grip.x, y0: grip.y, x1: x, y1: y};
          this.dirtyOver();
          return;
        }
        over.classList.add('moving');
        const {t0, t1} = grip.window, by = (grip.x - x) / plot.plot.w * (t1 - t0);
        this.setWindow(t0 + by, t1 + by);
        if (isMap) {
          const {a0, a1} = grip.addresses, up = (y - grip.y) / plot.plot.h * (a1 - a0);
          this.setAddresses(plot, a0 + up, a1 + up);
        }
        return;
      }
      state.hovered = isMap ? plot.pick(x, y) : -1;
      if (state.hovered >= 0) this.showTip(state.hovered, plot.layout, event.clientX, event.clientY); else this.hideTip();
      this.dirtyOver();
    });
    over.addEventListener('pointerup', (event) => {
      const {x, y} = place(event);
      over.classList.remove('moving');
      if (grip && !grip.moved && isMap) this.select(plot.pick(x, y));
      if (grip?.moved && grip.box) {
        const t = [plot.timeAt(grip.x, this.state.window), plot.timeAt(x, this.state.window)].sort((a, b) => a - b);
        const a = isMap ? [plot.addressAt(grip.y), plot.addressAt(y)].sort((p, q) => p - q) : null;
        this.setWindow(...t);
        if (a) this.setAddresses(plot, ...a);
      }
      this.rubber = null;
      grip = null;
      this.dirtyOver();
    });
    over.addEventListener('pointercancel', () => { grip = null; this.rubber = null; });
    over.addEventListener('pointerleave', () => {
      this.state.hoverTime = null;
      this.state.hovered = -1;
      this.hideTip();
      this.dirtyOver();
    });
    over.addEventListener('dblclick', (event) => {
      const {x, y} = place(event), i = isMap ? plot.pick(x, y) : -1;
      if (i >= 0) this.zoomTo(plot, i); else this.showAll();
    });
    over.addEventListener('wheel', (event) => {
      if (event.ctrlKey || event.metaKey || !plot.plot) return;
      event.preventDefault();
      const {x, y} = place(event);
      // Shift turns the wheel sideways in some browsers.
      const turned = event.deltaY || event.deltaX, factor = 2 ** (Math.max(-600, Math.min(600, turned)) / 300);
      if (event.shiftKey && isMap) this.zoomAddresses(plot, factor, plot.addressAt(y));
      else this.zoom(factor, plot.timeAt(x, this.state.window));
    }, {passive: false});
  }

  // --- Keys ----------------------------------------------------------------------------------

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || byId('help').open) return;
    const search = byId('search');
    if (event.target === search) {
      if (event.key === 'Escape') { this.highlight(null); search.blur(); }
      return;
    }
    if (event.target instanceof HTMLSelectElement) return;
    const common = {
      t: () => this.turnTheme(), '?': () => byId('help').showModal(), 1: () => this.showTab('memory'), 2: () => this.showTab('misses'),
    };
    const memory = {
      ArrowLeft: () => this.move(-0.2), ArrowRight: () => this.move(0.2),
      ArrowUp: () => this.moveAddresses(0.2), ArrowDown: () => this.moveAddresses(-0.2),
      '+': () => this.zoom(0.5), '=': () => this.zoom(0.5), '-': () => this.zoom(2), 0: () => this.showAll(), Home: () => this.showAll(),
      p: () => this.showPeak(), '[': () => this.showStep(-1), ']': () => this.showStep(1),
      '/': () => search.focus(), n: () => this.nextMatch(1), N: () => this.nextMatch(-1),
      '.': () => this.stepBlock(1), ',': () => this.stepBlock(-1),
      Escape: () => { this.highlight(null); this.select(-1); },
    };
    const action = common[event.key] ?? (this.tab === 'memory' && this.view ? memory[event.key] : undefined);
    if (!action) return;
    event.preventDefault();
    action();
  }

  stepBlock(by) {
    const {view, state} = this;
    const from = state.selected >= 0 ? state.selected + by : Math.max(0, view.birth.findIndex((birth) => birth >= state.window.t0));
    const next = Math.min(Math.max(from, 0), view.count - 1);
    if (next < 0) return;
    this.select(next);
    this.bringIntoView(next);
  }

  // --- Drawing -------------------------------------------------------------------------------

  redraw() { this.dirty.base = true; this.dirtyOver(); }
  dirtyOver() {
    this.dirty.over = true;
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => { this.frame = 0; this.drawNow(); });
  }
  drawNow() {
    const {state, view, dirty} = this;
    if (this.steps && !byId('misses').hidden && dirty.base) this.steps.draw();
    if (view && !byId('memory').hidden) {
      if (dirty.base) {
        this.lines.draw(state, view);
        for (const map of this.maps) map.draw(state, map.addresses);
        this.overview.draw(state, view);
      }
      this.lines.drawOver(state);
      for (const map of this.maps) map.drawOver(state);
      if (this.rubber) this.drawRubber();
    }
    dirty.base = dirty.over = false;
  }
  drawRubber() {
    const {plot, x0, y0, x1, y1} = this.rubber, pen = plot.overPen;
    pen.strokeStyle = themeColour('--accent');
    pen.lineWidth = 1.5;
    if (plot instanceof AddressMap) pen.strokeRect(Math.min(x0, x1), Math.min(y0, y1), Math.abs(x1 - x0), Math.abs(y1 - y0));
    else pen.strokeRect(Math.min(x0, x1), plot.plot.y, Math.abs(x1 - x0), plot.plot.h);
  }
}

const page = new Page(JSON.parse(byId('data').textContent));
