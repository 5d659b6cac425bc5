// Charts over time in SVG: lines, and stacked bars. Times run from old to new, in equal steps.

import { html, svg } from "./dom.js";

const HEIGHT = 190;
const PAD = { left: 56, right: 10, top: 10, bottom: 22 };
const TICKS = 4;

/**
 * A figure that draws what it is given.
 *
 * A series is `{name, style, values}`: `style` names its colour in the style sheet, a value of null
 * leaves a gap. The caption is the legend, with the values of the column that the pointer or the
 * arrow keys chose, else of the latest that has any.
 */
export class Chart {
  #figure;
  #svg = svg("svg", { tabindex: "0", role: "img" });
  #caption;
  #format;
  #draw;
  #chosen = null; // index of a column
  #data = null;

  /** `draw` is `lines` or `bars`; `format` writes a value. */
  constructor(figure, draw, format) {
    this.#figure = figure;
    this.#caption = figure.querySelector("figcaption");
    this.#draw = draw;
    this.#format = format;
    figure.insertBefore(this.#svg, this.#caption);
    this.#svg.addEventListener("pointermove", (event) => this.#choose(this.#columnAt(event)));
    this.#svg.addEventListener("pointerleave", () => this.#choose(null));
    this.#svg.addEventListener("blur", () => this.#choose(null));
    this.#svg.addEventListener("keydown", (event) => this.#step(event));
    new ResizeObserver(() => this.#render()).observe(figure);
  }

  /** Show `series` over `times`, which are strings. */
  show(times, series) {
    this.#data = { times, series };
    this.#render();
  }

  #render() {
    const width = this.#figure.clientWidth;
    if (!this.#data || !width) return;
    const { times, series } = this.#data;
    const top = niceCeiling(this.#draw.highest(series));
    const plot = {
      column: (width - PAD.left - PAD.right) / times.length,
      x: (index) => PAD.left + (index + 0.5) * plot.column,
      y: (value) => PAD.top + (1 - value / top) * (HEIGHT - PAD.top - PAD.bottom),
    };
    this.#svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.#svg.setAttribute("height", HEIGHT);
    const chosen = this.#chosen === null ? [] : [this.#cursor(plot)];
    this.#svg.replaceChildren(
      ...this.#axes(plot, times, top, width),
      ...this.#draw.marks(series, plot),
      ...chosen,
    );
    this.#legend();
  }

  #axes(plot, times, top, width) {
    const values = Array.from({ length: TICKS + 1 }, (_, index) => (top * index) / TICKS);
    const horizontal = values.flatMap((value) => [
      svg("line", { class: "grid", x1: PAD.left, x2: width - PAD.right, y1: plot.y(value), y2: plot.y(value) }),
      svg("text", { class: "tick end", x: PAD.left - 6, y: plot.y(value) + 4 }, this.#format(value)),
    ]);
    const ends = [
      svg("text", { class: "tick", x: PAD.left, y: HEIGHT - 5 }, times[0]),
      svg("text", { class: "tick end", x: width - PAD.right, y: HEIGHT - 5 }, times.at(-1)),
    ];
    return [...horizontal, ...ends];
  }

  #cursor(plot) {
    const x = plot.x(this.#chosen);
    return svg("line", { class: "cursor", x1: x, x2: x, y1: PAD.top, y2: HEIGHT - PAD.bottom });
  }

  #legend() {
    const { times, series } = this.#data;
    const latest = times.findLastIndex((_, index) => series.some(({ values }) => values[index] !== null));
    const column = this.#chosen ?? latest;
    const entries = series.map(({ name, style, values }) => {
      const value = column < 0 ? null : values[column];
      return html(
        "span",
        { class: "entry" },
        html("i", { class: `swatch ${style}` }),
        name,
        html("b", {}, this.#format(value)),
      );
    });
    const when = column < 0 ? "no requests in this window" : times[column];
    this.#caption.replaceChildren(...entries, html("time", {}, when));
    const spoken = series.map(({ name, values }) => `${name} ${this.#format(values[column] ?? null)}`);
    this.#svg.setAttribute("aria-label", `${when}: ${spoken.join(", ")}`);
  }

  #choose(column) {
    if (column === this.#chosen || !this.#data) return;
    this.#chosen = column;
    this.#render();
  }

  #columnAt(event) {
    const box = this.#svg.getBoundingClientRect();
    const columns = this.#data?.times.length ?? 0;
    const share = (event.clientX - box.left - PAD.left) / (box.width - PAD.left - PAD.right);
    return Math.min(columns - 1, Math.max(0, Math.floor(share * columns)));
  }

  #step(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || !this.#data) return;
    event.preventDefault();
    const last = this.#data.times.length - 1;
    this.#choose(Math.min(last, Math.max(0, (this.#chosen ?? last + 1) + by)));
  }
}

/** A line for each series; points without neighbours are dots. */
export const lines = {
  highest: (series) => Math.max(0, ...series.flatMap(({ values }) => values.filter((value) => value !== null))),
  marks: (series, { x, y }) =>
    series.flatMap(({ style, values }) => [
      svg("path", { class: `line ${style}`, d: path(values, x, y) }),
      ...values.flatMap((value, index) =>
        value !== null && (values[index - 1] ?? null) === null && (values[index + 1] ?? null) === null
          ? [svg("circle", { class: `dot ${style}`, cx: x(index), cy: y(value), r: 2.5 })]
          : [],
      ),
    ]),
};

/** Bars made of all series, the first one at the bottom. */
export const bars = {
  highest: (series) => Math.max(0, ...columns(series).map((stack) => stack.reduce((sum, value) => sum + value, 0))),
  marks: (series, { column, x, y }) =>
    columns(series).flatMap((stack, index) => {
      let below = 0;
      return stack.flatMap((value, which) => {
        const bottom = below;
        below += value;
        const height = y(bottom) - y(below);
        if (!height) return [];
        const width = Math.max(1, column - 1);
        return [
          svg("rect", { class: series[which].style, x: x(index) - width / 2, y: y(below), width, height }),
        ];
      });
    }),
};

function columns(series) {
  return (series[0]?.values ?? []).map((_, index) => series.map(({ values }) => values[index] ?? 0));
}

function path(values, x, y) {
  let pen = "M";
  return values
    .map((value, index) => {
      if (value === null) {
        pen = "M";
        return "";
      }
      const move = `${pen}${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
      pen = "L";
      return move;
    })
    .join("");
}

/** The next of 1, 2, 4, 8 × 10ⁿ at or above `value`: each has four equal parts that read well. */
function niceCeiling(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 8, 10].find((factor) => factor * power >= value) * power;
}
