// A job from a recipe or from a spec that somebody writes: checked and planned by the service before anything starts.

import { Problem, api, byId, el, refusal } from "./core.js";

const place = byId("body");

let found = { algorithms: [] };

/** Asks, and shows a refusal instead of an answer. */
async function asked(work) {
  try {
    await work();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    byId("trouble").replaceChildren(refusal(error));
  }
}

const load = () =>
  asked(async () => {
    const [recipes, algorithms] = await Promise.all([api("/v1/recipes"), api("/v1/algorithms")]);
    found = { algorithms };
    const none = () => el("option", { value: "" }, "none");
    byId("recipe").replaceChildren(none(), ...recipes.map((one) => el("option", { value: one.name, disabled: !one.data.available }, `${one.title} (${one.name})${one.data.available ? "" : ": its data aren't here"}`)));
    byId("algorithm").replaceChildren(none(), ...algorithms.map((one) => el("option", { value: one.name }, one.name)));
    byId("form").setAttribute("aria-busy", "false");
  });

function put(body, about) {
  place.value = JSON.stringify(body, null, 2);
  byId("about").textContent = about;
  place.removeAttribute("aria-invalid");
  byId("body-problem").textContent = "";
}

byId("algorithm").addEventListener("change", () => {
  const one = found.algorithms.find((each) => each.name === byId("algorithm").value);
  if (!one) return;
  byId("recipe").value = "";
  put({ spec: one.example }, one.summary);
});

byId("recipe").addEventListener("change", () =>
  asked(async () => {
    const name = byId("recipe").value;
    if (!name) return;
    byId("algorithm").value = "";
    put(await api(`/v1/recipes/${encodeURIComponent(name)}`), "A recipe of the papers.");
  }),
);

byId("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  byId("trouble").replaceChildren();
  byId("body-problem").textContent = "";
  place.removeAttribute("aria-invalid");
  let body;
  try {
    body = JSON.parse(place.value);
  } catch (error) {
    place.setAttribute("aria-invalid", "true");
    byId("body-problem").textContent = `This isn't JSON: ${error.message}`;
    place.focus();
    return;
  }
  const send = byId("send");
  send.disabled = true;
  try {
    const job = await api("/v1/jobs", { method: "POST", body, more: { "idempotency-key": byId("form").dataset.once } });
    location.assign(`/jobs/${job.id}`);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    byId("trouble").replaceChildren(refusal(error));
    // A refused request made nothing, and a changed one needs a name of its own; one that wasn't answered may have made a job.
    if (error.status !== 0) byId("form").dataset.once = newName();
  } finally {
    send.disabled = false;
  }
});

/** A name of a request. `crypto.randomUUID` is only there over https and on this machine itself. */
function newName() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

byId("form").dataset.once = newName();
load();
document.addEventListener("zetadp-key", load);
