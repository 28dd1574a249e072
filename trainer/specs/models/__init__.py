"""Networks as values: layers, shapes, weights given from outside, the papers' networks. Free of torch."""
