// Server-sent events with the key in a header (EventSource can't send one), going on after the last event when the line breaks.

import { Problem, request } from "./core.js";

const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 10_000;

/** States of a job after which nothing happens to it by itself. */
export const FINAL = ["succeeded", "failed", "cancelled"];

/**
 * Follows a stream until it ends, `signal` aborts, or the service refuses it for good.
 * @param {string} path
 * @param {(event: {type: string, id: string, data: object}) => void} take called once for each event, in order
 * @param {AbortSignal} signal
 * @param {(state: "open" | "waiting" | "ended", problem?: Problem) => void} told how the line is
 * @param {() => Promise<boolean>} isOver whether nothing more will be told; asked when a line ends without saying so
 */
export async function follow(path, take, signal, told, isOver) {
  let last = null;
  let pause = FIRST_PAUSE;
  // A line that ended in good order after everything was over has told all; one that was only cut off at its end by a proxy hasn't.
  let settled = false;
  while (!signal.aborted) {
    try {
      const answer = await request(path, { signal, more: { accept: "text/event-stream", ...(last === null ? {} : { "last-event-id": last }) } });
      told("open");
      pause = FIRST_PAUSE;
      let over = false;
      for await (const event of events(answer.body)) {
        if (event.type === "closed") {
          told("ended", new Problem(401, { detail: "The key is no longer valid. Enter one with the button at the top." }));
          return;
        }
        // After a broken line the service begins behind the last event; a number that came already is never taken twice.
        if (event.id !== "" && last !== null && Number(event.id) <= Number(last)) continue;
        if (event.id !== "") last = event.id;
        take(event);
        over = isLast(event);
      }
      if (over || settled) {
        told("ended");
        return;
      }
      settled = await isOver();
      if (settled) continue;
      told("waiting");
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem && error.status >= 400 && error.status < 500 && error.status !== 429) {
        told("ended", error);
        return;
      }
      told("waiting", error instanceof Problem ? error : undefined);
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(LONGEST_PAUSE, pause * 2);
  }
}

function isLast(event) {
  return event.type === "state" && FINAL.includes(event.data?.data?.state);
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      text += value;
      const blocks = text.split(/\r?\n\r?\n/);
      text = blocks.pop();
      for (const block of blocks) {
        const event = { type: "message", id: "", data: null };
        const data = [];
        for (const line of block.split(/\r?\n/)) {
          const [, name, rest] = /^([a-z]+):? ?(.*)$/s.exec(line) || [];
          if (name === "event") event.type = rest;
          else if (name === "id") event.id = rest;
          else if (name === "data") data.push(rest);
        }
        if (!data.length) continue;
        event.data = JSON.parse(data.join("\n"));
        yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
