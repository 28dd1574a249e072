r"""From a leaf of an event to its dominating pair: whole and sampled releases, both kinds of sampling, every adjacency, groups.

A release with whole-data pair f(x - m) against f(x) (m: mu of a Gaussian mechanism, epsilon of a Laplace mechanism) has the pair

    whole                     P = f(x - k m)                                Q = f(x)                            any adjacency
    Poisson                   P = sum_j Bin(k, q)(j) f(x - j m)             Q = f(x)                            add_remove, zero_out
    Poisson                   P = sum_j Bin(k, q)(j) f(x - j c)             Q = sum_j Bin(k, q)(j) f(x + j c)   replace_one
    truncated Poisson         as Poisson, and where the sample is cut as a fixed size, of which it is public when that happens
    random allocation         P = (1/t) sum_i f(x - m e_i) on R^t            Q = f(x)                            add_remove, zero_out
    randomly weighted         P = E f(x - s m), s random                    Q = f(x)                            add_remove, zero_out
    randomly weighted         P = E f(x - s c)                              Q = E f(x + s c)                    replace_one
    random allocation         as whole, which bounds it; or as removing and adding (allocation/replaced.py)           replace_one
    bins, drawn once          as random allocation to those that are a band apart, of all rounds' m             add_remove, zero_out
    shuffled epoch            as whole, which bounds it                                                          zero_out, replace_one
    fixed size                P = sum_j H(j) f(x - 2 j m)                   Q = f(x)                            add_remove
    fixed size                P = (1 - q) f(x) + q f(x - m)                 Q = f(x), the worse direction       replace_one
    fixed size                P = (1 - q) f(x) + q f(x - 2 m)               Q = f(x), the worse direction       zero_out

for a group of k, with H the hypergeometric probabilities of how many of its units a sample of a fixed size holds (for one unit 1 - q and q;
groups under replace_one and zero_out have a pair known by its profile, ``displaced``), and c the shift of what one unit contributes. A
local release (of a single record, replace_one) keeps its whole pair, and a sample of any kind only shows it with probability q: epsilon
isn't amplified. Laplace noise on the n coordinates of a whole record is n leaves. proofs/pairs.md proves each row and says which of them
are attained.
"""

from __future__ import annotations

from zetadp.accountants.dominating.poisson import LARGEST_SAMPLED_GROUP
from zetadp.accountants.dominating.resolution import pair_of, unsupported_reason
from zetadp.accountants.dominating.statements import statement

__all__ = ["LARGEST_SAMPLED_GROUP", "pair_of", "statement", "unsupported_reason"]
