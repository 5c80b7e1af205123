// Draws a chart as SVG: axes, raw and smoothed lines, marks at restarts of the run, a cursor that
// shows values, and zoom by dragging.

const kMargin = {
  left: 58,
  right: 14,
  top: 10,
  bottom: 34
};
const kHeight = 260;

function element(name, attributes = {}, parent = null) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (parent) parent.append(node);
  return node;
}

function html(name, className, parent, text) {
  const node = document.createElement(name);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  if (parent) parent.append(node);
  return node;
}

function swatch(color, parent) { html("i", "swatch", parent).style.background = color; }

/**
 * Returns the minimum and maximum of the finite values (only positive ones on a log scale), with
 * a margin.
 */
function extent(lists, log, room) {
  let low = Infinity, high = -Infinity;
  for (const values of lists) {
    for (const value of values) {
      if (value === null || !Number.isFinite(value) || (log && value <= 0)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  if (low > high) return null;
  if (log) return [low / (1 + room), high * (1 + room)];
  const gap = high > low ? (high - low) * room : Math.abs(high) * 0.1 || 1;
  return [low - gap, high + gap];
}

/** Returns the SVG path through the points; it is interrupted at points that cannot be drawn. */
function pathOf(xs, ys, scaleX, scaleY, log) {
  let path = "", pen = "M";
  for (let i = 0; i < xs.length; ++i) {
    const y = ys[i];
    if (y === null || (log && y <= 0)) {
      pen = "M";
      continue;
    }
    path += pen + scaleX(xs[i]).toFixed(1) + " " + scaleY(y).toFixed(1);
    pen = "L";
  }
  return path;
}

class Chart {
  /**
   * spec: {title, log, axisTitle(), lines(): [{label, color, dash, marks, x, y, smoothed}],
   * starts(): [x]}.
   */
  constructor(parent, spec) {
    this.spec = spec;
    this.log = spec.log || false;
    this.zoom = null;
    this.figure = html("figure", "", parent);
    const caption = html("figcaption", "", this.figure);
    html("span", "", caption, spec.title);
    this.keys = html("span", "keys", caption);
    this.button = html("button", "", caption, "log");
    this.button.type = "button";
    this.button.title = "logarithmic scale";
    this.button.onclick = () => {
      this.log = !this.log;
      this.draw();
    };
    this.svg = element("svg", {role: "img", "aria-label": spec.title}, this.figure);
    this.tooltip = html("div", "tooltip", this.figure);
    this.tooltip.hidden = true;
    this.listen();
  }

  listen() {
    const x = (event) => event.clientX - this.svg.getBoundingClientRect().left;
    this.svg.onpointermove = (event) => this.point(x(event), event);
    this.svg.onpointerleave = () => this.leave();
    this.svg.onpointerdown = (event) => (this.dragFrom = x(event));
    this.svg.onpointerup = (event) => this.choose(x(event));
    this.svg.ondblclick = () => {
      this.zoom = null;
      this.draw();
    };
  }

  draw() {
    this.lines = this.spec.lines().filter((line) => line.x.length > 0);
    this.figure.hidden = this.lines.length === 0;
    if (this.figure.hidden) return;
    this.width = Math.max(260, this.svg.clientWidth || 440);
    this.button.setAttribute("aria-pressed", String(this.log));
    this.svg.replaceChildren();
    this.drawKeys();
    this.layScales();
    this.drawAxes();
    for (const line of this.lines) this.drawLine(line);
    this.cursor = element("g", {}, this.svg);
  }

  drawKeys() {
    this.keys.replaceChildren();
    if (this.lines.length < 2) return;
    for (const line of this.lines) {
      const key = html("span", "", this.keys);
      swatch(line.color, key);
      key.append(line.label);
    }
  }

  layScales() {
    const everything = extent(this.lines.map((line) => line.x), false, 0) || [0, 1];
    const [left, right] = this.zoom || everything;
    const inside = (line, ys) => ys.filter((_, i) => line.x[i] >= left && line.x[i] <= right);
    const lists = this.lines.flatMap((line) => [inside(line, line.y)]);
    const [low, high] = extent(lists, this.log, 0.05) || (this.log ? [0.1, 10] : [0, 1]);
    const pad = left === right ? 1 : 0;
    this.x = makeScale(left - pad, right + pad, kMargin.left, this.width - kMargin.right, false);
    this.y = makeScale(low, high, kHeight - kMargin.bottom, kMargin.top, this.log);
  }

  drawAxes() {
    const bottom = kHeight - kMargin.bottom, right = this.width - kMargin.right;
    const clip = "clip" + Math.random().toString(36).slice(2);
    element(
        "rect", {x: kMargin.left, y: 0, width: right - kMargin.left, height: bottom + 1},
        element("clipPath", {id: clip}, this.svg));
    for (const tick of this.y.ticks(5)) {
      const y = this.y(tick);
      element("line", {class: "grid", x1: kMargin.left, x2: right, y1: y, y2: y}, this.svg);
      element("text", {x: kMargin.left - 8, y: y + 4, "text-anchor": "end"}, this.svg).textContent =
          shortNumber(tick);
    }
    for (const tick of this.x.ticks(Math.max(3, Math.floor(this.width / 90)))) {
      const x = this.x(tick);
      element("line", {class: "frame", x1: x, x2: x, y1: bottom, y2: bottom + 4}, this.svg);
      element("text", {x, y: bottom + 17, "text-anchor": "middle"}, this.svg).textContent =
          shortNumber(tick);
    }
    element(
        "line", {class: "frame", x1: kMargin.left, x2: right, y1: bottom, y2: bottom}, this.svg);
    element(
        "text", {x: (kMargin.left + right) / 2, y: kHeight - 2, "text-anchor": "middle"}, this.svg)
        .textContent = this.spec.axisTitle();
    this.plot = element("g", {"clip-path": `url(#${clip})`}, this.svg);
    for (const start of this.spec.starts()) {
      const x = this.x(start);
      const mark =
          element("line", {class: "start", x1: x, x2: x, y1: kMargin.top, y2: bottom}, this.plot);
      element("title", {}, mark).textContent = "started again";
    }
  }

  drawLine(line) {
    const draw = (values, name) => {
      const path = element(
          "path", {class: name, d: pathOf(line.x, values, this.x, this.y, this.log)}, this.plot);
      path.style.stroke = line.color;
      if (line.dash) path.style.strokeDasharray = line.dash;
    };
    if (line.smoothed !== line.y) draw(line.y, "line raw");
    draw(line.smoothed, "line");
    if (!line.marks && line.x.length > 1) return;
    line.x.forEach((x, i) => {
      if (line.y[i] === null || (this.log && line.y[i] <= 0)) return;
      element(
          "circle", {cx: this.x(x), cy: this.y(line.y[i]), r: 2.6, style: `fill:${line.color}`},
          this.plot);
    });
  }

  point(pixel, event) {
    if (!this.lines || pixel < kMargin.left || pixel > this.width - kMargin.right)
      return this.leave();
    this.cursor.replaceChildren();
    const wanted = this.x.invert(pixel), bottom = kHeight - kMargin.bottom;
    if (event.buttons === 1 && this.dragFrom !== undefined) {
      const left = Math.min(pixel, this.dragFrom);
      element(
          "rect", {
            class: "choice",
            x: left,
            y: kMargin.top,
            width: Math.abs(pixel - this.dragFrom),
            height: bottom - kMargin.top
          },
          this.cursor);
    }
    element(
        "line", {class: "cursor", x1: pixel, x2: pixel, y1: kMargin.top, y2: bottom}, this.cursor);
    this.tooltip.replaceChildren();
    html("b", "", this.tooltip, `${this.spec.axisTitle()} ${exactNumber(wanted)}`);
    for (const line of this.lines) {
      const i = nearest(line.x, wanted), y = line.y[i];
      const row = html("div", "", this.tooltip);
      swatch(line.color, row);
      row.append(
          `${line.label} ${exactNumber(y)}` +
          (line.smoothed !== line.y ? ` (smoothed ${exactNumber(line.smoothed[i])})` : "") +
          ` at ${exactNumber(line.x[i])}`);
      if (y !== null && (!this.log || y > 0)) {
        element(
            "circle", {cx: this.x(line.x[i]), cy: this.y(y), r: 3.5, style: `fill:${line.color}`},
            this.cursor);
      }
    }
    this.tooltip.hidden = false;
    const offset = pixel > this.width / 2 ? -this.tooltip.offsetWidth - 4 : 28;
    this.tooltip.style.left = Math.max(0, pixel + offset) + "px";
    this.tooltip.style.top = "44px";
  }

  choose(pixel) {
    const from = this.dragFrom;
    this.dragFrom = undefined;
    if (from === undefined || Math.abs(pixel - from) < 8) return;
    const inside = (value) => Math.min(Math.max(value, kMargin.left), this.width - kMargin.right);
    this.zoom = [
      this.x.invert(inside(Math.min(from, pixel))), this.x.invert(inside(Math.max(from, pixel)))
    ];
    this.draw();
  }

  leave() {
    this.tooltip.hidden = true;
    if (this.cursor) this.cursor.replaceChildren();
  }
}

/** Draws a histogram of step times. */
class Histogram {
  constructor(parent, spec) {
    this.spec = spec;
    this.figure = html("figure", "", parent);
    const caption = html("figcaption", "", this.figure);
    html("span", "", caption, spec.title);
    this.keys = html("span", "keys", caption);
    this.svg = element("svg", {role: "img", "aria-label": spec.title}, this.figure);
  }

  draw() {
    const groups = this.spec.groups();
    this.figure.hidden = groups.length === 0;
    if (this.figure.hidden) return;
    const width = Math.max(260, this.svg.clientWidth || 440), bottom = kHeight - kMargin.bottom;
    this.svg.replaceChildren();
    this.keys.replaceChildren();
    const ends =
        groups.flatMap(({bins}) => [bins.first, bins.first + bins.width * bins.counts.length]);
    const x =
        makeScale(Math.min(...ends), Math.max(...ends), kMargin.left, width - kMargin.right, false);
    const y = makeScale(
        0, Math.max(...groups.flatMap(({bins}) => bins.counts)) * 1.05, bottom, kMargin.top, false);
    for (const tick of y.ticks(5)) {
      element(
          "line",
          {class: "grid", x1: kMargin.left, x2: width - kMargin.right, y1: y(tick), y2: y(tick)},
          this.svg);
      element("text", {x: kMargin.left - 8, y: y(tick) + 4, "text-anchor": "end"}, this.svg)
          .textContent = shortNumber(tick);
    }
    for (const tick of x.ticks(Math.max(3, Math.floor(width / 90)))) {
      element("text", {x: x(tick), y: bottom + 17, "text-anchor": "middle"}, this.svg).textContent =
          shortNumber(tick);
    }
    element(
        "line",
        {class: "frame", x1: kMargin.left, x2: width - kMargin.right, y1: bottom, y2: bottom},
        this.svg);
    element(
        "text",
        {x: (kMargin.left + width - kMargin.right) / 2, y: kHeight - 2, "text-anchor": "middle"},
        this.svg)
        .textContent = "ms";
    for (const group of groups) this.drawGroup(group, x, y, bottom);
  }

  drawGroup({label, color, bins}, x, y, bottom) {
    bins.counts.forEach((count, i) => {
      const left = bins.first + i * bins.width;
      const bar = element(
          "rect", {
            class: "bar",
            x: x(left),
            y: y(count),
            height: bottom - y(count),
            width: Math.max(1, x(left + bins.width) - x(left) - 1)
          },
          this.svg);
      bar.style.fill = color;
      element("title", {}, bar).textContent =
          `${exactNumber(left)} to ${exactNumber(left + bins.width)} ms: ${count} steps`;
    });
    const key = html("span", "", this.keys);
    swatch(color, key);
    const beyond =
        bins.above > 0 ? `, ${bins.above} beyond, up to ${shortNumber(bins.highest)}` : "";
    key.append(`${label ? label + ": " : ""}median ${shortNumber(bins.median)} ms, 95 % below ${
        shortNumber(bins.p95)}${beyond}`);
  }
}
