// Words that the service and its pages share; the page carries them, so that they stand in one place.

const TERMS = JSON.parse(document.documentElement.dataset.terms);

/** From the strongest on: what a guarantee is called up to a guess (in percent) and a delta, and whether delta may publish somebody. */
export const STRENGTHS = TERMS.strengths;

/** What these words mean. */
export const DEFINED = TERMS.defined;

/** A unit's name as words. */
export const spelled = (unit) => unit.replaceAll("_", " ");

/**
 * What an adjacency hides of one unit, in words; null for one that isn't known.
 * @param {string | null} adjacency
 * @param {string} unit
 * @returns {Record<string, string> | null} choice, question, absent, present and shown
 */
export function neighbourWords(adjacency, unit) {
  const words = Object.hasOwn(TERMS.neighbours, adjacency ?? "") ? TERMS.neighbours[adjacency ?? ""] : null;
  return words ? Object.fromEntries(Object.entries(words).map(([name, text]) => [name, text.replaceAll("{unit}", spelled(unit))])) : null;
}
