"""From records to a clipped sum of gradients by unit, and what checks it."""
