// Words that the service and its pages share; the page carries them, so that they stand in one place.

const TERMS = JSON.parse(document.documentElement.dataset.terms);

/** A unit's name as words. */
export const spelled = (unit) => unit.replaceAll("_", " ");

/**
 * What an adjacency hides of one unit, in words; null for one that isn't known.
 * @param {string | null} adjacency
 * @param {string} unit
 * @returns {Record<string, string> | null} choice, absent, present and shown
 */
export function neighbourWords(adjacency, unit) {
  const words = Object.hasOwn(TERMS.neighbours, adjacency ?? "") ? TERMS.neighbours[adjacency ?? ""] : null;
  return words ? Object.fromEntries(Object.entries(words).map(([name, text]) => [name, text.replaceAll("{unit}", spelled(unit))])) : null;
}

/** A paper's name, where one of its statements is cited. */
export const paperName = (paper) => (Object.hasOwn(TERMS.papers, paper) ? TERMS.papers[paper] : paper);
