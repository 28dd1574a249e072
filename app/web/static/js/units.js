// How many units there are, where something says so: a delta that would allow publishing one of them is weak.

/**
 * The number of units that an event or a plan states, in whatever part: the largest, if there are several. Null where none does, and where units
 * are groups of those that are counted: nobody knows how many groups there are.
 * @param {any} part an event or a part of one, as JSON
 * @returns {number | null}
 */
export function unitsIn(part) {
  if (part === null || typeof part !== "object") return null;
  if (part.kind === "grouped") return null;
  const found = [part.population_size, ...Object.values(part).map(unitsIn)].filter((one) => Number.isInteger(one) && one > 0);
  return found.length ? Math.max(...found) : null;
}
