// Draws the load of every expert as a heat map: experts from left to right, layers from top to
// bottom, coloured by the load divided by the mean of its layer.

/** Colours are strongest from this multiple, and this fraction, of the mean. */
const kStrongest = 4;

/** The legend: multiples of the mean, and their labels. */
const kHeatKeys =
    [[0, "no choice"], [1 / 4, "≤ ¼"], [1 / 2, "½"], [1, "mean"], [2, "2"], [4, "≥ 4 × mean"]];

/** Returns the colour of a multiple of the mean and its opacity: on a log scale, 0 at the mean. */
function heat(relative) {
  if (relative === 0) return {color: "var(--text)", opacity: 1};
  const strength = Math.min(1, Math.abs(Math.log(relative)) / Math.log(kStrongest));
  return {color: relative > 1 ? "var(--c7)" : "var(--c0)", opacity: +strength.toFixed(3)};
}

/** Returns the smallest power of two whose multiples lie `room` pixels apart. */
function labelStep(size, room) {
  let step = 1;
  while (step * size < room) step *= 2;
  return step;
}

class HeatMap {
  /** spec: {title, loads: {layers, loads, relative}, isVisible()}. */
  constructor(parent, spec) {
    this.spec = spec;
    this.columns = Math.max(...spec.loads.loads.map((row) => row.length));
    this.figure = html("figure", "wide", parent);
    const caption = html("figcaption", "", this.figure);
    html("span", "", caption, spec.title);
    this.drawKeys(html("span", "keys", caption));
    this.svg = element("svg", {role: "img", "aria-label": spec.title}, this.figure);
    this.tooltip = html("div", "tooltip", this.figure);
    this.tooltip.hidden = true;
    this.svg.onpointermove = (event) => this.point(event);
    this.svg.onpointerleave = () => this.leave();
  }

  drawKeys(keys) {
    for (const [relative, label] of kHeatKeys) {
      const key = html("span", "", keys);
      const {color, opacity} = heat(relative), frame = html("i", "swatch framed", key);
      swatch(color, frame);
      frame.firstChild.style.opacity = opacity;
      key.append(label);
    }
  }

  draw() {
    this.figure.hidden = !this.spec.isVisible();
    const width = Math.max(260, this.svg.clientWidth || 440);
    if (this.figure.hidden || width === this.width) return;
    const {loads, relative} = this.spec.loads;
    this.width = width;
    this.cellWidth = (width - kMargin.left - kMargin.right) / this.columns;
    this.cellHeight = Math.min(26, Math.max(11, 560 / loads.length));
    this.svg.replaceChildren();
    this.svg.style.height = kMargin.top + loads.length * this.cellHeight + kMargin.bottom + "px";
    relative.forEach((row, y) => row.forEach((value, x) => this.drawCell(x, y, value)));
    this.drawAxes(loads.length);
    this.cursor = element("g", {}, this.svg);
  }

  /** Returns the rectangle of `columns` × `rows` cells from one cell on. */
  place(column, row, columns, rows) {
    return {
      x: (kMargin.left + column * this.cellWidth).toFixed(2),
      y: (kMargin.top + row * this.cellHeight).toFixed(2),
      width: (columns * this.cellWidth).toFixed(2),
      height: (rows * this.cellHeight).toFixed(2)
    };
  }

  drawCell(column, row, relative) {
    if (relative === null) return;
    const {color, opacity} = heat(relative);
    const cell = element("rect", {class: "cell", ...this.place(column, row, 1, 1)}, this.svg);
    cell.style.fill = color;
    cell.style.fillOpacity = opacity;
  }

  drawAxes(rows) {
    element("rect", {class: "frame", ...this.place(0, 0, this.columns, rows)}, this.svg);
    const text = (attributes, content) =>
        (element("text", attributes, this.svg).textContent = content);
    const bottom = kMargin.top + rows * this.cellHeight;
    for (let i = 0; i < this.columns; i += labelStep(this.cellWidth, 28)) {
      const x = kMargin.left + (i + 0.5) * this.cellWidth;
      text({x, y: bottom + 15, "text-anchor": "middle"}, i);
    }
    for (let i = 0; i < rows; i += labelStep(this.cellHeight, 11)) {
      const y = kMargin.top + (i + 0.5) * this.cellHeight + 4;
      text({x: kMargin.left - 8, y, "text-anchor": "end"}, this.spec.loads.layers[i]);
    }
    const middle = (kMargin.top + bottom) / 2;
    text({x: this.width / 2, y: bottom + kMargin.bottom - 2, "text-anchor": "middle"}, "expert");
    text(
        {x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})`},
        "layer");
  }

  point(event) {
    const box = this.svg.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - kMargin.left) / this.cellWidth),
          row = Math.floor((event.clientY - box.top - kMargin.top) / this.cellHeight);
    const {layers, loads, relative} = this.spec.loads;
    if (!(column in (loads[row] || []))) return this.leave();
    this.cursor.replaceChildren();
    element("rect", {class: "cursor", fill: "none", ...this.place(column, row, 1, 1)}, this.cursor);
    this.tooltip.replaceChildren();
    html("b", "", this.tooltip, `layer ${layers[row]}, expert ${column}`);
    html("div", "", this.tooltip, `${exactNumber(loads[row][column])} choices`);
    html("div", "", this.tooltip, `${exactNumber(relative[row][column])} × the mean of the layer`);
    this.tooltip.hidden = false;
    const pixel = event.clientX - box.left;
    const offset = pixel > this.width / 2 ? -this.tooltip.offsetWidth - 4 : 28;
    this.tooltip.style.left = Math.max(0, pixel + offset) + "px";
    this.tooltip.style.top = event.clientY - box.top + 44 + "px";
  }

  leave() {
    this.tooltip.hidden = true;
    if (this.cursor) this.cursor.replaceChildren();
  }
}
