// The server's endpoints, with the API key where one is wanted.

import { byId } from "./dom.js";

const ROOT = new URL("..", import.meta.url); // works behind a proxy that adds a prefix
const KEY = "foreword-api-key";

/** An answer that is not a success; `message` is what the server said. */
export class ServerError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

let asking = null; // the one question that is open

function askForKey() {
  asking ??= new Promise((answered) => {
    const dialog = byId("key");
    const input = dialog.querySelector("input");
    input.value = "";
    const given = () => {
      if (!input.value) return dialog.showModal(); // closed with Escape: nothing works without it
      sessionStorage.setItem(KEY, input.value);
      dialog.removeEventListener("close", given);
      asking = null;
      answered();
    };
    dialog.addEventListener("close", given);
    dialog.showModal();
  });
  return asking;
}

/** Send a request; ask for the key, and again while it is wrong. */
async function send(path, options = {}) {
  for (;;) {
    const key = sessionStorage.getItem(KEY);
    const headers = { ...options.headers, ...(key && { Authorization: `Bearer ${key}` }) };
    const response = await fetch(new URL(path, ROOT), { ...options, headers });
    if (response.ok) return response;
    if (response.status !== 401) throw new ServerError(response.status, await reason(response));
    if (key) byId("key-reason").textContent = "The server does not take this key.";
    if (sessionStorage.getItem(KEY) === key) await askForKey();
  }
}

async function reason(response) {
  const text = await response.text();
  try {
    return JSON.parse(text).error.message;
  } catch {
    return `status ${response.status}`;
  }
}

/** Return what a path answers, as data. */
export async function get(path) {
  return (await send(path, { cache: "no-store" })).json();
}

/** Post a body and yield the JSON of each event of the stream that answers. */
export async function* stream(path, body, signal) {
  const response = await send(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
  const decoder = new TextDecoder();
  const reader = response.body.getReader();
  let pending = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (pending + decoder.decode(value, { stream: true })).split("\n\n");
    pending = events.pop();
    for (const event of events) {
      if (!event.startsWith("data: ") || event === "data: [DONE]") continue;
      const data = JSON.parse(event.slice("data: ".length));
      if (data.error) throw new ServerError(500, data.error.message);
      yield data;
    }
  }
}
