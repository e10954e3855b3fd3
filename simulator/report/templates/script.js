"use strict";
// Sortable tables, timelines that can be zoomed, folded text that is printed. The page reads well without.

const collator = new Intl.Collator("en", { numeric: true });

// What a cell sorts by: the first number in it, or its text; empty cells come last either way.
function key(cell) {
  const text = cell.textContent.trim();
  const number = parseFloat(text.replace(/,/g, "").replace(/^[<>~]/, "").replace("−", "-"));
  return { empty: text === "" || text === "–", number, text };
}

function sort(table, column, descending) {
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => [key(row.cells[column]), row]);
  const numeric = rows.every(([one]) => one.empty || !Number.isNaN(one.number));
  const order = ([a], [b]) => {
    if (a.empty || b.empty) return a.empty - b.empty;
    const held = numeric ? a.number - b.number : collator.compare(a.text, b.text);
    return descending ? -held : held;
  };
  body.append(...rows.sort(order).map(([, row]) => row));
  for (const head of table.tHead.rows[0].cells) head.removeAttribute("aria-sort");
  table.tHead.rows[0].cells[column].setAttribute("aria-sort", descending ? "descending" : "ascending");
}

for (const table of document.querySelectorAll("table[data-sortable]")) {
  for (const head of table.tHead.rows[0].querySelectorAll("th")) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sort(table, head.cellIndex, head.getAttribute("aria-sort") === "ascending"));
    head.append(button);
  }
}

// A link leads to a section that it unfolds.
function unfold() {
  const aim = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const details = aim && aim.querySelector(":scope > details");
  if (details) details.open = true;
}
addEventListener("hashchange", unfold);
for (const link of document.querySelectorAll("nav a")) link.addEventListener("click", () => setTimeout(unfold));
unfold();

const folded = new Set();
addEventListener("beforeprint", () => {
  for (const one of document.querySelectorAll("details:not([open])")) {
    one.open = true;
    folded.add(one);
  }
});
addEventListener("afterprint", () => {
  for (const one of folded) one.open = false;
  folded.clear();
});

const GAP = 6, AXIS = 24, LETTER = 7;
const LEAST_US = 1; // the closest look: this many microseconds across

function element(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [one, value] of Object.entries(attributes)) made.setAttribute(one, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function milliseconds(us) {
  return (us / 1000).toLocaleString("en", { maximumSignificantDigits: 6 });
}

// 1, 2 or 5 times a power of ten, at or above a length.
function roundUp(length) {
  const power = 10 ** Math.floor(Math.log10(length));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= length * 0.999999);
}

class Timeline {
  constructor(figure) {
    const { lanes, kinds, spans, view } = JSON.parse(figure.querySelector("script").textContent);
    Object.assign(this, { figure, lanes, kinds, first: view });
    this.chart = figure.querySelector(".chart");
    this.details = figure.querySelector(".details");
    this.rows = lanes.map(() => []);
    for (const [lane, kind, start, length] of spans) this.rows[lane].push({ lane, kind, start, end: start + length });
    this.end = Math.max(...this.rows.flat().map((span) => span.end));
    this.high = lanes.length > 8 ? 20 : 34;
    this.gutter = 16 + LETTER * Math.max(...lanes.map((name) => name.length));
    this.pointers = new Map();
    this.chosen = null;
    this.legend();
    this.listen();
    figure.querySelector(".live").hidden = false;
    figure.classList.add("drawn");
    this.look(...view);
    new ResizeObserver(() => this.draw()).observe(this.chart);
  }

  legend() {
    const items = this.kinds.map(({ lane, label, fill }) => {
      const item = document.createElement("li");
      const patch = document.createElement("i");
      patch.style.background = fill;
      item.append(patch, `${lane}: ${label}`);
      return item;
    });
    this.figure.querySelector(".legend").append(...items);
  }

  // Show from one microsecond to another, within what there is.
  look(from, to) {
    const length = Math.min(Math.max(to - from, LEAST_US), this.end);
    this.from = Math.min(Math.max(from, 0), this.end - length);
    this.to = this.from + length;
    this.figure.dataset.from = this.from;
    this.figure.dataset.to = this.to;
    this.draw();
  }

  zoom(factor, around = (this.from + this.to) / 2) {
    this.look(around - (around - this.from) * factor, around + (this.to - around) * factor);
  }

  pan(share) {
    const shift = (this.to - this.from) * share;
    this.look(this.from + shift, this.to + shift);
  }

  get room() {
    return Math.max(this.chart.clientWidth - this.gutter - 8, 50);
  }

  x(time) {
    return this.gutter + ((time - this.from) / (this.to - this.from)) * this.room;
  }

  time(clientX) {
    const inside = clientX - this.chart.getBoundingClientRect().left - this.gutter;
    return this.from + (inside / this.room) * (this.to - this.from);
  }

  draw() {
    const wide = this.chart.clientWidth, high = AXIS + this.lanes.length * (this.high + GAP) + 4;
    const svg = element("svg", { role: "img", height: high, viewBox: `0 0 ${wide} ${high}` });
    svg.append(element("title", {}, `Spans from ${milliseconds(this.from)} to ${milliseconds(this.to)} ms`));
    this.lanes.forEach((name, row) => {
      const y = AXIS + row * (this.high + GAP);
      svg.append(element("text", { class: "lane", x: 8, y: y + this.high / 2 + 4 }, name));
      svg.append(element("rect", { class: "row", x: this.gutter, y, width: this.room, height: this.high }));
    });
    this.ticks(svg, high);
    this.lanes.forEach((_, row) => this.drawRow(svg, row));
    this.chart.replaceChildren(svg);
  }

  ticks(svg, high) {
    const step = roundUp(((this.to - this.from) / this.room) * 90);
    for (let at = Math.ceil(this.from / step) * step; at <= this.to; at += step) {
      const x = this.x(at);
      svg.append(element("line", { class: "grid", x1: x, x2: x, y1: AXIS - 4, y2: high }));
      const anchor = x < this.gutter + 20 ? "start" : x > this.gutter + this.room - 30 ? "end" : "middle";
      svg.append(element("text", { class: "tick", x, y: 14, "text-anchor": anchor }, `${milliseconds(at)} ms`));
    }
  }

  drawRow(svg, row) {
    const y = AXIS + row * (this.high + GAP);
    let drawnTo = -1;
    for (const span of this.rows[row]) {
      if (span.end <= this.from || span.start >= this.to) continue;
      const left = Math.max(this.x(span.start), this.gutter), right = Math.min(this.x(span.end), this.gutter + this.room);
      if (right < drawnTo + 0.5 && span !== this.chosen) continue; // nobody sees what is behind half a pixel
      drawnTo = Math.max(right, left + 1);
      this.drawSpan(svg, span, left, Math.max(right - left, 1), y);
    }
  }

  drawSpan(svg, span, x, width, y) {
    const { label, fill, ink } = this.kinds[span.kind];
    const box = element("rect", { class: span === this.chosen ? "span chosen" : "span", x, y, width, height: this.high, fill });
    box.span = span;
    svg.append(box);
    const words = [label, `${milliseconds(Number((span.end - span.start).toPrecision(3)))} ms`];
    const fitting = words.filter((one) => one.length * LETTER + 6 <= width).slice(0, this.high < 30 ? 1 : 2);
    fitting.forEach((one, index) => {
      const middle = y + this.high / 2 + 4 + (index - (fitting.length - 1) / 2) * 14;
      svg.append(element("text", { x: x + width / 2, y: middle, fill: ink, "text-anchor": "middle" }, one));
    });
  }

  choose(span) {
    if (!span || span === this.chosen) return;
    this.chosen = span;
    const length = milliseconds(Number((span.end - span.start).toPrecision(5)));
    const where = `from ${milliseconds(span.start)} to ${milliseconds(span.end)} ms`;
    this.details.textContent = `${this.lanes[span.lane]}: ${this.kinds[span.kind].label}, ${length} ms, ${where}`;
    this.draw();
  }

  visible(span) {
    return span.end > this.from && span.start < this.to;
  }

  // The span beside the chosen one in its lane, or the one nearest in time in the next lane that shows any.
  step(along, across) {
    const centre = (span) => (span.start + span.end) / 2;
    const at = this.chosen ? centre(this.chosen) : (this.from + this.to) / 2;
    const far = (span) => Math.abs(centre(span) - at);
    const nearest = (row) => row.filter((span) => this.visible(span)).sort((a, b) => far(a) - far(b))[0];
    const known = this.chosen && this.visible(this.chosen);
    let found;
    if (known && along) {
      const row = this.rows[this.chosen.lane];
      found = row[row.indexOf(this.chosen) + along];
    } else {
      const lanes = known && across < 0 ? this.rows.slice(0, this.chosen.lane).reverse() : this.rows.slice(known ? this.chosen.lane + 1 : 0);
      found = lanes.map(nearest).find(Boolean);
    }
    if (!found) return;
    this.choose(found);
    if (found.start < this.from || found.end > this.to) {
      const half = (this.to - this.from) / 2;
      this.look(centre(found) - half, centre(found) + half);
    }
  }

  act(name) {
    const acts = {
      closer: () => this.zoom(0.6),
      wider: () => this.zoom(1 / 0.6),
      earlier: () => this.pan(-0.4),
      later: () => this.pan(0.4),
      all: () => this.look(0, this.end),
      reset: () => this.look(...this.first),
    };
    acts[name]();
  }

  listen() {
    for (const button of this.figure.querySelectorAll("[data-do]")) {
      button.addEventListener("click", () => this.act(button.dataset.do));
    }
    this.chart.addEventListener("keydown", (event) => this.keyed(event));
    this.chart.addEventListener("wheel", (event) => this.wheeled(event), { passive: false });
    this.chart.addEventListener("pointerdown", (event) => this.pressed(event));
    this.chart.addEventListener("pointermove", (event) => this.moved(event));
    for (const end of ["pointerup", "pointercancel"]) {
      this.chart.addEventListener(end, (event) => this.pointers.delete(event.pointerId));
    }
  }

  keyed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const sideways = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const across = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    const act = { "+": "closer", "=": "closer", "-": "wider", "−": "wider", Home: "reset", End: "all" }[event.key];
    if (act) this.act(act);
    else if (sideways && event.shiftKey) this.pan(0.25 * sideways);
    else if (sideways) this.step(sideways, 0);
    else if (across) this.step(0, across);
    else return;
    event.preventDefault();
  }

  wheeled(event) {
    if (!event.ctrlKey && document.activeElement !== this.chart) return; // the page scrolls on
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan(event.deltaX / this.room);
    else this.zoom(1.0015 ** event.deltaY, this.time(event.clientX));
  }

  pressed(event) {
    this.chart.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, event.clientX);
    this.choose(event.target.span);
  }

  moved(event) {
    if (!this.pointers.has(event.pointerId)) {
      this.choose(event.target.span);
      return;
    }
    const before = [...this.pointers.values()].map((one) => this.time(one));
    this.pointers.set(event.pointerId, event.clientX);
    const now = [...this.pointers.values()];
    if (now.length === 1) {
      const shift = before[0] - this.time(now[0]);
      this.look(this.from + shift, this.to + shift);
      return;
    }
    // Two fingers keep the times that they stand on.
    const [a, b] = now.map((one) => one - this.chart.getBoundingClientRect().left - this.gutter);
    const scale = (before[1] - before[0]) / (b - a);
    if (Number.isFinite(scale) && scale > 0) this.look(before[0] - a * scale, before[0] - a * scale + this.room * scale);
  }
}

for (const figure of document.querySelectorAll("figure[data-timeline]")) new Timeline(figure);
