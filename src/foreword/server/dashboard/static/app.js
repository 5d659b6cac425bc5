// Puts the page together and keeps it up to date.

import { get } from "./api.js";
import { byId } from "./dom.js";
import { Overview } from "./overview.js";
import { Playground } from "./playground.js";
import { Requests } from "./requests.js";
import { openWaterfall, watchAddress } from "./waterfall.js";

const EVERY_MS = 2000;

const overview = new Overview();
const requests = new Requests(openWaterfall);
new Playground(openWaterfall);
watchAddress();

let started = null;
let timer = 0;
let round = 0;

async function refresh() {
  clearTimeout(timer);
  const mine = ++round;
  try {
    const stats = await get(`v1/stats?window_s=${byId("window").value}`);
    if (mine !== round) return; // a later round has begun
    if (started !== stats.started_unix_s) {
      started = stats.started_unix_s;
      overview.reset();
      requests.reset();
    }
    overview.show(stats);
    await requests.refresh();
    tell("live", "live");
  } catch (error) {
    const why = error instanceof TypeError ? "cannot reach the server" : error.message;
    tell("lost", `${why}; trying again`);
  }
  if (mine === round && !document.hidden) timer = setTimeout(refresh, EVERY_MS);
}

function tell(state, text) {
  const shown = byId("connection");
  if (shown.textContent !== text) shown.textContent = text; // a screen reader says changes only
  shown.className = state;
}

byId("window").addEventListener("change", refresh);
document.addEventListener("visibilitychange", () => document.hidden || refresh());
refresh();
