// The table of requests, a page at a time: a server may remember ten thousand.

import { get } from "./api.js";
import { byId, html } from "./dom.js";
import { clock, count, ms } from "./format.js";
import { PARTS, style } from "./parts.js";

const PAGE = 50;

/** Shows `/v1/requests`. The first page follows what happens; the others stand still. */
export class Requests {
  #befores = [null]; // for each page up to this one: the id that it begins after
  #open;
  #hasMore = false;

  /** `open` is called with the id of a request whose waterfall is wanted. */
  constructor(open) {
    this.#open = open;
    byId("newest").addEventListener("click", () => this.#go([null]));
    byId("newer").addEventListener("click", () => this.#go(this.#befores.slice(0, -1)));
    byId("older").addEventListener("click", () => this.#go([...this.#befores, this.#last()]));
  }

  /** Go to the first page: the server has restarted. */
  reset() {
    this.#befores = [null];
  }

  /** Read the page again, where it may have changed. */
  async refresh() {
    if (this.#befores.length === 1) await this.#load();
  }

  async #go(befores) {
    this.#befores = befores;
    try {
      await this.#load();
    } catch {
      this.#befores = [null]; // the server no longer knows where the page began
    }
  }

  #last() {
    return byId("requests").lastElementChild?.dataset.id ?? null;
  }

  async #load() {
    const before = this.#befores.at(-1);
    const from = before === null ? "" : `&before=${encodeURIComponent(before)}`;
    const page = await get(`v1/requests?limit=${PAGE}${from}`);
    if (before !== this.#befores.at(-1)) return; // the reader has turned the page meanwhile
    this.#hasMore = page.has_more;
    this.#show(page.data);
  }

  #show(requests) {
    const focused = document.activeElement?.closest("#requests tr")?.dataset.id;
    const longest = Math.max(...requests.map(({ ttft_ms }) => ttft_ms ?? 0));
    byId("requests").replaceChildren(...requests.map((request) => this.#row(request, longest)));
    if (focused) byId("requests").querySelector(`[data-id="${CSS.escape(focused)}"] button`)?.focus();
    const first = this.#befores.length === 1;
    byId("no-requests").hidden = requests.length > 0 || !first;
    byId("newest").disabled = byId("newer").disabled = first;
    byId("older").disabled = !this.#hasMore;
  }

  #row(request, longest) {
    const { usage } = request;
    const ended = request.finish_reason ?? request.status;
    const number = (text) => html("td", { class: "number" }, text);
    return html(
      "tr",
      { "data-id": request.id, click: () => this.#open(request.id) },
      html("td", {}, clock(request.received_unix_s)),
      html("td", {}, html("span", { class: `status ${request.status}` }, ended)),
      number(ms(request.ttft_ms)),
      html("td", { class: "wide" }, strip(request, longest)),
      number(count(usage.prompt_tokens)),
      number(count(usage.cached_tokens)),
      number(count(usage.completion_tokens)),
      number(ms(request.tpot_ms)),
      number(ms(request.e2e_ms)),
      html("td", {}, html("button", { type: "button", class: "id", title: request.id }, request.id)),
    );
  }
}

/** The parts of a request's TTFT in one line; its length is the share of the longest TTFT here. */
function strip({ ttft_ms: ttft, parts_ms: parts }, longest) {
  const line = html("div", { class: "strip" });
  for (const part of PARTS.keys()) {
    if (!parts?.[part] || !ttft) continue;
    const piece = html("span", { class: style(part), title: `${part} ${ms(parts[part])}` });
    piece.style.width = `${(100 * parts[part]) / longest}%`;
    line.append(piece);
  }
  return line;
}
