// Whether jobs wait because no worker is alive: a look every few seconds, and one sentence.

import { Problem, api, byId, el } from "./core.js";

const EVERY = 10000;
const WORDS = "No worker is running at the moment, so jobs wait until one is started.";

/** Says so in #no-worker while it is the case and `matters()`. */
export async function watchWorkers(matters = () => true) {
  try {
    const { checks } = await api("/readyz");
    const missing = checks.some((check) => check.name === "workers" && !check.ok);
    const place = byId("no-worker");
    if (!missing || !matters()) place.replaceChildren();
    else if (!place.firstChild) place.append(el("p", { class: "notice" }, WORDS));
  } catch (error) {
    if (!(error instanceof Problem)) throw error; // what else is missing, other requests tell
  }
  setTimeout(watchWorkers, EVERY, matters);
}
