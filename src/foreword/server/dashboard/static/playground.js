// A chat with the served model that times itself: this page's clock beside the server's.

import { stream } from "./api.js";
import { byId, html } from "./dom.js";
import { count, ms } from "./format.js";

/** The conversation and the form under it. */
export class Playground {
  #messages = [];
  #stopping = null; // of the answer that is being written
  #form = byId("playground");
  #open;

  /** `open` is called with the id of an answer whose waterfall is wanted. */
  constructor(open) {
    this.#open = open;
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#ask();
    });
    this.#form.elements.prompt.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.#form.requestSubmit();
    });
    byId("stop").addEventListener("click", () => this.#stopping?.abort());
    byId("clear").addEventListener("click", () => {
      this.#stopping?.abort();
      this.#messages = [];
      byId("chat").replaceChildren();
    });
  }

  async #ask() {
    if (this.#stopping) return;
    const prompt = this.#form.elements.prompt.value;
    const question = { role: "user", content: prompt };
    this.#form.elements.prompt.value = "";
    add("user", prompt);
    const answer = add("assistant", "");
    const stopping = (this.#stopping = new AbortController());
    this.#busy(true);
    try {
      const text = await this.#read([...this.#messages, question], answer, stopping.signal);
      if (!stopping.signal.aborted || text) this.#messages.push(question, { role: "assistant", content: text });
    } catch (error) {
      answer.append(html("p", { class: "error" }, stopping.signal.aborted ? "stopped" : error.message));
      if (!stopping.signal.aborted) this.#form.elements.prompt.value = prompt;
    } finally {
      this.#stopping = null;
      this.#busy(false);
    }
  }

  /** Write the answer as it comes; return its text. */
  async #read(messages, answer, signal) {
    const [text, facts] = [answer.querySelector(".text"), html("p", { class: "hint" })];
    const began = performance.now();
    let [first, last, written, id, timing] = [null, null, "", null, null];
    answer.append(facts);
    for await (const chunk of stream("v1/chat/completions", this.#body(messages), signal)) {
      id ??= chunk.id;
      timing = chunk.timing ?? timing;
      const piece = chunk.choices[0]?.delta?.content;
      if (!piece) continue;
      last = performance.now();
      first ??= last;
      written += piece;
      text.append(piece);
      facts.textContent = `TTFT ${ms(first - began)} here`;
      answer.scrollIntoView({ block: "nearest" });
    }
    if (first !== null) facts.replaceChildren(...this.#account(first - began, last - first, id, timing));
    return written;
  }

  #body(messages) {
    const { system, max_tokens: most, temperature } = this.#form.elements;
    const opening = system.value ? [{ role: "system", content: system.value }] : [];
    return {
      messages: [...opening, ...messages],
      max_tokens: Number(most.value) || undefined,
      temperature: Number(temperature.value),
      stream: true,
      timing: true,
    };
  }

  #account(ttft, rest, id, timing) {
    const parts = [`TTFT ${ms(ttft)} here`];
    if (timing) {
      const tokens = timing.usage.completion_tokens;
      parts.push(`${ms(timing.ttft_ms)} at the server`, `${count(tokens)} tokens`);
      if (tokens > 1 && rest > 0) parts.push(`${((1000 * (tokens - 1)) / rest).toFixed(1)} tokens/s`);
    }
    const show = html("button", { type: "button", class: "id", click: () => this.#open(id) }, "waterfall");
    return [parts.join(" · "), " ", show];
  }

  #busy(busy) {
    this.#form.querySelector("[type=submit]").disabled = busy;
    byId("stop").disabled = !busy;
    byId("chat").setAttribute("aria-busy", busy);
  }
}

function add(role, text) {
  const message = html("article", { class: role }, html("div", { class: "text" }, text));
  byId("chat").append(message);
  return message;
}
