"""What the papers' algorithms really move, keep and cost: sensitivities, ranges and counts behind the mechanisms and the errata."""
