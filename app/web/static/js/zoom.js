// A part of the horizontal axis, typed as two numbers: all curves of a page show it alone.

import { byId } from "./core.js";
import { say } from "./submit-fields.js";

const NUMBER = /^(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?$/i;

/** One end; null where the field is empty, undefined where it holds no number. */
function end(id) {
  const text = byId(id).value.trim();
  if (text === "") return null;
  return text.length <= 40 && NUMBER.test(text) ? Number(text) : undefined;
}

/**
 * What is typed as [from, to], an open end as null; null where all is to be seen, or what is typed makes no part.
 * @returns {[number | null, number | null] | null}
 */
export function zoomed() {
  const [from, to] = [end("zoom-from"), end("zoom-to")];
  const wrong = from === undefined || to === undefined ? "Enter numbers, or leave them empty." : from !== null && to !== null && !(from < to) ? "The second must be larger." : "";
  say("zoom-to", wrong);
  return wrong || (from === null && to === null) ? null : [from ?? null, to ?? null];
}

/** Calls `redraw` whenever another part is typed. */
export function offerZoom(redraw) {
  for (const id of ["zoom-from", "zoom-to"]) byId(id).addEventListener("input", redraw);
  byId("zoom-all").addEventListener("click", () => {
    for (const id of ["zoom-from", "zoom-to"]) byId(id).value = "";
    redraw();
  });
}

/**
 * The points to draw of a part: those in it, and the nearest on each side, to which its lines lead.
 * @param {[number, number][]} points by their x, from the smallest on
 * @param {[number | null, number | null] | null | undefined} part
 */
export function within(points, part) {
  if (!part) return points;
  const [from, to] = [part[0] ?? -Infinity, part[1] ?? Infinity];
  const last = points.findLastIndex(([x]) => x < from);
  const next = points.findIndex(([x]) => x > to);
  return points.slice(Math.max(0, last), next < 0 ? undefined : next + 1);
}
