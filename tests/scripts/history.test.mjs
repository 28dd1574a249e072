// Where a run's figures lie along an axis: never at less than they cost.

import "./page.mjs";

import assert from "node:assert/strict";
import { test } from "node:test";

import { History } from "./js/job-history.js";

const event = (type, seconds, data) => ({ type, data: { time: new Date(1000 * seconds).toISOString(), data } });

function course() {
  const made = new History();
  made.take(event("started", 0, { resumed_from_step: 0 }));
  made.take(event("progress", 10, { step: 10, steps: 40, epsilon: 1, delta: 1e-5 }));
  made.take(event("metrics", 15, { step: 15, metrics: { accuracy: 0.8 } }));
  return made;
}

test("a metric lies at the epsilon of its step or of the first report after it", () => {
  const made = course();
  const [[step, , time]] = made.metrics.get("accuracy");
  assert.ok(Number.isNaN(made.along(step, time, "epsilon"))); // nothing says yet what it cost
  made.take(event("progress", 20, { step: 20, steps: 40, epsilon: 2, delta: 1e-5 }));
  assert.equal(made.along(step, time, "epsilon"), 2);
  assert.equal(made.along(10, time, "epsilon"), 1);
});

test("a metric lies at its own time", () => {
  const made = course();
  const [[step, , time]] = made.metrics.get("accuracy");
  assert.equal(made.along(step, time, "seconds"), 15);
  assert.equal(made.along(step, time, "step"), 15);
});

test("what has no finite epsilon isn't among what is spent", () => {
  const made = course();
  made.take(event("progress", 20, { step: 20, steps: 40, epsilon: "Infinity", delta: 1e-5 }));
  assert.deepEqual(made.spent.map(([step, epsilon]) => [step, epsilon]), [[10, 1]]);
});
