"""Laws of privacy losses on a lattice, above and below a pair or a composition of pairs."""
