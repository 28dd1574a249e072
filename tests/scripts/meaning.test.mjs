// Which strength an (epsilon, delta) has, and what is read of the service's sentences.

import "./page.mjs";

import assert from "node:assert/strict";
import { test } from "node:test";

import { counted } from "./js/findings.js";
import { atLeast, mostOf, STRENGTHS, strength } from "./js/meaning.js";

test("a strength holds up to its limits and not beyond", () => {
  const named = (guess, delta) => STRENGTHS.indexOf(strength(guess, delta));
  assert.deepEqual([50, 75, 75.1, 90, 90.1, 99, 99.1, 100].map((guess) => named(guess, 0)), [0, 0, 1, 1, 2, 2, 3, 3]);
  assert.deepEqual([0.0009, 0.001, 0.0099, 0.01, 0.099, 0.1, 0.9].map((delta) => named(50, delta)), [0, 1, 1, 2, 2, 3, 3]);
});

test("a larger epsilon or delta never has a better strength", () => {
  const named = (guess, delta) => STRENGTHS.indexOf(strength(guess, delta));
  const [guesses, deltas] = [[50, 60, 75, 76, 90, 95, 99, 100], [0, 1e-9, 1e-3, 1e-2, 0.1, 0.5]];
  for (const guess of guesses) for (const delta of deltas) for (const other of guesses) if (other >= guess) assert.ok(named(other, delta) >= named(guess, delta));
  for (const guess of guesses) for (const delta of deltas) for (const other of deltas) if (other >= delta) assert.ok(named(guess, other) >= named(guess, delta));
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

test("a decimal is never taken for less than it is", () => {
  for (const text of ["0.1", "0.3", "4", "1e-05", "0.8008127", "2.675"]) assert.ok(atLeast(text) > Number(text));
  assert.equal(atLeast(0.1), 0.1);
  assert.equal(atLeast("0"), 0);
  assert.equal(atLeast("Infinity"), Infinity);
});
