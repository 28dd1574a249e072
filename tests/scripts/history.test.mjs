// Where a run's figures lie along an axis: never at less than they cost.

import "./page.mjs";

import assert from "node:assert/strict";
import { test } from "node:test";

import { History } from "./js/job-history.js";
import { figuresOf } from "./js/job-view.js";
import { within } from "./js/zoom.js";

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

test("a part of a curve has its points and the nearest on each side", () => {
  const points = [1, 2, 3, 4, 5, 6].map((x) => [x, 10 * x]);
  const seen = (part) => within(points, part).map(([x]) => x);
  assert.deepEqual(seen([2.5, 4.5]), [2, 3, 4, 5]);
  assert.deepEqual(seen([3, 4]), [2, 3, 4, 5]);
  assert.deepEqual(seen([null, 2]), [1, 2, 3]);
  assert.deepEqual(seen([5, null]), [4, 5, 6]);
  assert.deepEqual(seen(null), [1, 2, 3, 4, 5, 6]);
  assert.deepEqual(seen([8, 9]), [6]);
});

test("a run's figures as a file are all that was reported, by step", () => {
  const rows = figuresOf(course());
  assert.deepEqual(rows[0], ["step", "time", "figure", "value"]);
  assert.deepEqual(rows.slice(1).map(([step, , name, value]) => [step, name, value]), [[10, "epsilon", "1"], [15, "accuracy", "0.8"]]);
});
