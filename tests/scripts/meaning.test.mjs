// Which strength an (epsilon, delta) has, and what is read of the service's sentences.

import "./page.mjs";

import assert from "node:assert/strict";
import { test } from "node:test";

import { counted, proven } from "./js/findings.js";
import { atLeast, mostOf, strength } from "./js/meaning.js";
import { STRENGTHS, neighbourWords } from "./js/terms.js";

test("a strength holds up to its limits and not beyond", () => {
  const named = (...of) => strength(...of).name;
  assert.deepEqual([50, 75, 75.1, 90, 90.1, 99, 99.1, 100].map((guess) => named(guess, 0)), ["strong", "strong", "moderate", "moderate", "weak", "weak", "almost no", "almost no"]);
  assert.deepEqual([1e-6, 1.1e-6, 1e-5, 1.1e-5, 1e-3, 0.0011, 0.9].map((delta) => named(50, delta)), ["strong", "moderate", "moderate", "weak", "weak", "almost no", "almost no"]);
});

test("a delta that would allow publishing one of the units is weak at best", () => {
  assert.deepEqual([null, 99_999, 100_000, 10 ** 9].map((units) => strength(50, 1e-5, units).name), ["moderate", "moderate", "weak", "weak"]);
  // 0.000003 times 333334 is more than 1, and so is what a float makes of it.
  assert.equal(strength(50, 3e-6, 333_334).name, "weak");
});

test("a larger epsilon or delta never has a better strength", () => {
  const named = (guess, delta) => STRENGTHS.indexOf(strength(guess, delta));
  const [guesses, deltas] = [[50, 60, 75, 76, 90, 95, 99, 100], [0, 1e-9, 1e-6, 1e-5, 1e-3, 0.5]];
  for (const guess of guesses) for (const delta of deltas) for (const other of guesses) if (other >= guess) assert.ok(named(other, delta) >= named(guess, delta));
  for (const guess of guesses) for (const delta of deltas) for (const other of deltas) if (other >= delta) assert.ok(named(guess, other) >= named(guess, delta));
});

test("each adjacency has its own words, of this unit", () => {
  const words = ["add_remove", "replace_one", "zero_out"].map((adjacency) => neighbourWords(adjacency, "group_of_3"));
  for (const name of ["choice", "question", "absent"]) assert.equal(new Set(words.map((one) => one[name])).size, 3);
  assert.equal(words[0].question, "whether this group of 3 was included or left out");
  assert.deepEqual(words.map((one) => one.shown), ["", "That the group of 3 is in the data at all isn't hidden.", "That the group of 3 is in the data at all isn't hidden."]);
  assert.equal(neighbourWords(null, "record"), null);
});

test("the bound is the sentence's own, and certainty where it states none", () => {
  assert.equal(mostOf("A test names the record with probability at most 2.72 %."), "2.72");
  assert.equal(mostOf("... with probability at most 1e-9 %."), "1e-9");
  assert.equal(mostOf("Nothing is promised: a test may name the record with probability 100 %."), "100");
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

test("a decimal is never taken for less than it is", () => {
  for (const text of ["0.1", "0.3", "4", "1e-05", "0.8008127", "2.675"]) assert.ok(atLeast(text) > Number(text));
  assert.equal(atLeast(0.1), 0.1);
  assert.equal(atLeast("0"), 0);
  assert.equal(atLeast("Infinity"), Infinity);
});
