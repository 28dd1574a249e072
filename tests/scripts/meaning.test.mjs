// Words for neighbours, numbers of units, and what is read of printed statements.

import "./page.mjs";

import assert from "node:assert/strict";
import { test } from "node:test";

import { counted, proven } from "./js/findings.js";
import { neighbourWords } from "./js/terms.js";
import { unitsIn } from "./js/units.js";

test("each adjacency has its own words, of this unit", () => {
  const words = ["add_remove", "replace_one", "zero_out"].map((adjacency) => neighbourWords(adjacency, "group_of_3"));
  for (const name of ["choice", "absent"]) assert.equal(new Set(words.map((one) => one[name])).size, 3);
  assert.equal(words[0].absent, "the group of 3 was left out");
  assert.deepEqual(words.map((one) => one.shown), ["", "The group of 3's presence isn't hidden.", "The group of 3's presence isn't hidden."]);
  assert.equal(neighbourWords(null, "record"), null);
});

test("printed statements are counted in neutral words", () => {
  const all = (...directions) => directions.map((direction) => ({ direction, epsilon: [] }));
  assert.equal(counted(all("overclaims", "equal", "does_not_apply")), ": 1 of 2 differ");
  assert.equal(counted(all("equal")), ": it agrees");
  assert.equal(counted(all("does_not_apply")), "");
});

test("what is proven is never rounded to the side that promises more", () => {
  const value = 0.123456789;
  const shown = (direction, printed, isUpper) => Number(proven({ direction, printed, proven: value }, isUpper));
  assert.ok(shown("overclaims", 0.1) >= value && shown("loose", 0.1) <= value);
  assert.ok(shown("loose", 0.2) >= value && shown("overclaims", 0.2) <= value);
  // Which side is the safe one isn't known: all digits.
  assert.deepEqual(["equal", "differs", "does_not_apply"].map((direction) => shown(direction, value)), [value, value, value]);
  assert.ok(shown("equal", value, true) >= value);
  assert.equal(proven({ direction: "does_not_apply", printed: null, proven: null }), "no number");
});

test("the largest number of units that is stated counts, and none of groups", () => {
  const sampled = (population_size) => ({ kind: "fixed_size_sampled", sample_size: 1, population_size, event: { kind: "release", mechanism: {} } });
  assert.equal(unitsIn({ kind: "repeated", count: 9, event: sampled(500) }), 500);
  assert.equal(unitsIn({ kind: "composed", events: [sampled(500), sampled(700), { kind: "release" }] }), 700);
  assert.equal(unitsIn({ kind: "grouped", size: 3, unit: "user", event: sampled(500) }), null);
  assert.equal(unitsIn({ kind: "poisson_sampled", probability: 0.1, event: { kind: "release" } }), null);
  assert.equal(unitsIn(null), null);
});
