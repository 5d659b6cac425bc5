// One request's waterfall, in a dialog; its address can be shared (#id).

import { get } from "./api.js";
import { byId, html } from "./dom.js";
import { clock, count, ms, share } from "./format.js";
import { PARTS, style } from "./parts.js";

const CAUSES = {
  step: "a step was under way",
  budget: "the step's token budget was spent",
  sequences: "as many sequences as may run did",
  blocks: "no KV blocks were free",
  prefix: "its beginning was being computed for another request",
  preempted: "it had to give up its KV blocks",
};

/** Open the dialog on a request. */
export async function openWaterfall(id) {
  const dialog = byId("waterfall");
  const body = byId("waterfall-body");
  history.replaceState(null, "", `#${encodeURIComponent(id)}`);
  byId("waterfall-heading").textContent = id;
  body.replaceChildren(html("p", {}, "reading"));
  if (!dialog.open) dialog.showModal();
  try {
    const found = await get(`v1/requests/${encodeURIComponent(id)}/waterfall`);
    body.replaceChildren(facts(found), timeline(found), remarks(found));
  } catch (error) {
    body.replaceChildren(html("p", { class: "error" }, error.message));
  }
}

/** Let the dialog be opened by the page's address, and clear that when it closes. */
export function watchAddress() {
  const follow = () => location.hash.length > 1 && openWaterfall(decodeURIComponent(location.hash.slice(1)));
  byId("waterfall").addEventListener("close", () => history.replaceState(null, "", location.pathname));
  window.addEventListener("hashchange", follow);
  follow();
}

function facts({ status, finish_reason: reason, received_unix_s: received, usage, active = {}, ...times }) {
  const entries = [
    ["Received", clock(received)],
    ["Status", reason ? `${status} (${reason})` : status],
    ["TTFT", ms(times.ttft_ms)],
    ["TPOT", ms(times.tpot_ms)],
    ["Total", ms(times.e2e_ms)],
    ["Prompt tokens", `${count(usage.prompt_tokens)} (${count(usage.cached_tokens)} cached)`],
    ["Output tokens", count(usage.completion_tokens)],
    ["Ran on", ["backend", "isa", "compute"].map((name) => active[name]).filter(Boolean).join(" · ")],
    ["KV cache", active.kv_cache_dtype],
    ["Threads", active.threads],
    ["Chunks", active.chunks],
    ["Preemptions", active.preemptions],
  ];
  const shown = entries.filter(([, value]) => value !== undefined && value !== null && value !== "");
  return html(
    "dl",
    { class: "facts" },
    ...shown.map(([name, value]) => html("div", {}, html("dt", {}, name), html("dd", {}, String(value)))),
  );
}

function timeline({ parts = [] }) {
  const end = Math.max(...parts.map((part) => part.start_ms + part.duration_ms));
  return html("ol", { class: "timeline" }, ...parts.map((part) => row(part, end)));
}

function row(part, end) {
  const bar = html("span", { class: `span ${style(part.part)}` });
  bar.style.marginLeft = `min(${(100 * part.start_ms) / end}%, 100% - 2px)`;
  bar.style.width = `${(100 * part.duration_ms) / end}%`;
  return html(
    "li",
    {},
    html("span", { class: "name" }, part.part),
    html("span", { class: "track" }, bar),
    html("span", { class: "number" }, ms(part.duration_ms)),
    html("span", { class: "number share" }, share(part.duration_ms, end)),
    html("small", {}, ...detail(part)),
  );
}

/** What a part is, why it took place, and who was in the way: text, and buttons to who it was. */
function detail(part) {
  const words = [PARTS.get(part.part) ?? ""];
  if (part.tokens) words.push(`: ${count(part.tokens)} tokens from position ${count(part.start_token ?? 0)}`);
  if (part.cause) words.push(`: ${CAUSES[part.cause] ?? part.cause}`);
  const where = part.part === "prefill" ? "; beside " : "; behind ";
  for (const [index, { id, tokens }] of (part.behind ?? []).entries()) {
    const open = () => openWaterfall(id);
    words.push(index ? ", " : where, html("button", { type: "button", class: "id", title: id, click: open }, id));
    words.push(` (${count(tokens)} tokens)`);
  }
  const others = part.behind_others;
  if (others) words.push(` and ${count(others.requests)} more (${count(others.tokens)} tokens)`);
  if (part.forgotten) words.push("; what came before is not known any more");
  if (part.decodes) words.push(`; ${count(part.decodes)} streams got a token meanwhile`);
  return words;
}

function remarks({ parts = [], status }) {
  if (parts.length) return html("p", { class: "hint" }, "The parts add up to the time to first token.");
  const why = status === "running" ? "it has not begun to answer" : "it ended before it was answered";
  return html("p", { class: "hint" }, `There is nothing to show yet: ${why}.`);
}
