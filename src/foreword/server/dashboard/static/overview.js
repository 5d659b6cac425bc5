// The numbers and curves at the top of the page.

import { Chart, bars, lines } from "./chart.js";
import { byId, html } from "./dom.js";
import { clock, count, duration, ms, share } from "./format.js";
import { PARTS, style } from "./parts.js";

const SAMPLES = 150;
const SMALL = 0.02; // of the whole

/** Shows what `/v1/stats` answers. */
export class Overview {
  #ttft = new Chart(byId("ttft"), lines, ms);
  #parts = new Chart(byId("parts"), bars, ms);
  #sequences = new Chart(byId("sequences"), lines, whole);
  #blocks = new Chart(byId("blocks"), lines, (value) => share(value, 1));
  #samples = []; // of the engine's state, one for each answer

  /** Forget what was seen of another server, or of one that has restarted since. */
  reset() {
    this.#samples = [];
  }

  /** Show an answer. */
  show(stats) {
    byId("server").textContent =
      `${stats.model} · version ${stats.version} · up ${duration(stats.now_unix_s - stats.started_unix_s)}`;
    byId("tiles").replaceChildren(...tiles(stats));
    const times = stats.slots.map((slot) => clock(slot.begin_unix_s));
    this.#ttft.show(times, quantiles(stats.slots));
    this.#parts.show(times, stack(stats.slots));
    this.#samples = [...this.#samples, stats].slice(-SAMPLES);
    const sampled = this.#samples.map((sample) => clock(sample.now_unix_s));
    this.#sequences.show(sampled, sequences(this.#samples));
    this.#blocks.show(sampled, blocks(this.#samples));
  }
}

function tiles({ engine, window }) {
  const ttft = window.ttft_ms ?? {};
  const tpot = window.tpot_ms ?? {};
  const blocks = engine.kv_blocks;
  return [
    tile("TTFT p50", ms(ttft.p50), `max ${ms(ttft.max)}`),
    tile("TTFT p90", ms(ttft.p90), foresight(window.ttft_prediction_error)),
    tile("TTFT p99", ms(ttft.p99)),
    tile("TPOT p50", ms(tpot.p50), `p99 ${ms(tpot.p99)}`),
    tile("Requests", count(sum(window.requests)), trouble(window)),
    tile("Running", count(engine.running), `${count(engine.waiting)} waiting`),
    tile("KV in use", share(blocks.referenced, blocks.total), `${share(blocks.cached, blocks.total)} cached`),
    tile("Hit rate", share(window.cached_tokens, window.prompt_tokens), sources(window)),
  ];
}

/** Where the hits were, if there is more than one place. */
function sources({ cached_by_source: tokens, prompt_tokens: all }) {
  const shown = Object.entries(tokens).map(([source, cached]) => `${source} ${share(cached, all)}`);
  return shown.length > 1 ? shown.join(", ") : "of prompt tokens";
}

function tile(name, value, note = "") {
  return html("div", {}, html("dt", {}, name), html("dd", {}, value), html("dd", { class: "note" }, note));
}

function sum(counts) {
  return Object.values(counts).reduce((total, value) => total + value, 0);
}

function trouble({ requests: { aborted = 0, failed = 0 }, errors: { 429: refused = 0 } }) {
  const ended = `${count(failed)} failed, ${count(aborted)} aborted`;
  return refused ? `${ended}, ${count(refused)} refused` : ended;
}

/** How far predictions of TTFT are off, half of them. */
function foresight(error) {
  return error ? `predicted ± ${share(error.p50, 1)}` : "";
}

function quantiles(slots) {
  return ["p50", "p90", "p99"].map((name) => ({
    name,
    style: `curve-${name}`,
    values: slots.map((slot) => slot.ttft_ms?.[name] ?? null),
  }));
}

/** Mean time in each part; the parts that hardly matter are added up. */
function stack(slots) {
  const sums = new Map([...PARTS.keys()].map((part) => [part, sumOf(slots, part)]));
  const all = [...sums.values()].reduce((total, value) => total + value, 0);
  const [large, small] = [[], []];
  for (const [part, value] of sums) (value > SMALL * all ? large : small).push(part);
  const curve = (name, colour, parts) => ({
    name,
    style: colour,
    values: slots.map((slot) => (slot.ttft_ms ? parts.reduce((sum, part) => sum + (slot.parts_ms[part] ?? 0), 0) : null)),
  });
  return [
    ...(all ? [curve("others", style(null), small)] : []),
    ...large.map((part) => curve(part, style(part), [part])),
  ];
}

function sumOf(slots, part) {
  return slots.reduce((sum, slot) => sum + (slot.parts_ms[part] ?? 0), 0);
}

function sequences(samples) {
  return ["running", "waiting"].map((name) => ({
    name,
    style: `curve-${name}`,
    values: samples.map(({ engine }) => engine[name]),
  }));
}

function blocks(samples) {
  return ["referenced", "cached"].map((name) => ({
    name: { referenced: "in use", cached: "kept for prefixes" }[name],
    style: `curve-${name}`,
    values: samples.map(({ engine }) => engine.kv_blocks[name] / engine.kv_blocks.total),
  }));
}

/** Counts have no fractions: an axis leaves those out. */
function whole(value) {
  return value === null || Number.isInteger(value) ? count(value) : "";
}
