// The running of a page that asks one endpoint as one types, and keeps what was typed in the address.

import { Problem, api, byId, later } from "./core.js";
import { offer } from "./exports.js";
import { FieldProblem, blame, clear, fits, giveUp, keep, markPending, markStale, recall, tell } from "./form.js";

const PAUSE = 60; // milliseconds without a key before the service is asked

/**
 * Asks once and after every change.
 * @param {object} of form, path (of the endpoint, or what returns it), fields, body (made of them; throws FieldProblem), show (the answer, with
 *   its signal and what was asked; what it goes on to ask for is awaited), inputOf (a refusal's
 *   path: its input or nothing), arrange (after each change; may be left out).
 */
export function keepAsking({ form, path, fields, body, show, inputOf, arrange = () => {} }) {
  let running = new AbortController();
  let last;
  let shown = null;

  async function update() {
    running.abort();
    running = new AbortController();
    const { signal } = running;
    markPending();
    clear(form);
    try {
      remember();
      const asked = body();
      const where = typeof path === "string" ? path : path();
      const answer = await api(where, { method: "POST", body: asked, signal });
      const more = show(answer, { signal, asked });
      shown = { path: where, body: asked };
      markStale(false);
      await more;
    } catch (error) {
      if (error.name === "AbortError") return;
      shown = null;
      markStale(true);
      if (error instanceof FieldProblem) blame(error.input, error.message);
      else if (error instanceof Problem) tell(error, inputOf, last);
      else giveUp(error);
    } finally {
      if (!signal.aborted) byId("answer").setAttribute("aria-busy", "false");
    }
  }

  function address() {
    const query = new URLSearchParams();
    keep(query, {}, fields);
    return query.size ? `${location.pathname}?${query}` : location.pathname;
  }

  function remember() {
    if (fits(fields)) history.replaceState(null, "", address());
  }

  function restore() {
    recall(new URLSearchParams(location.search), {}, fields);
    arrange();
  }

  const soon = later(update, PAUSE);
  form.addEventListener("input", (event) => {
    last = event.target.id ? event.target : undefined; // a choice of the question has no place for a message
    markPending();
    arrange();
    // A choice is a step that the browser can go back from; typing isn't.
    if (event.target.tagName === "SELECT" && fields.includes(event.target) && fits(fields)) history.pushState(null, "", address());
    soon();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("popstate", () => {
    restore();
    update();
  });
  document.addEventListener("zetadp-key", soon);
  if (document.getElementById("exports")) offer(() => shown);
  restore();
  update();
}
