r"""What each row of the errata means for a protected run: what was printed, and what this service does instead."""

from __future__ import annotations

from mechanisms.errata import Severity

ROWS: tuple[tuple[str, Severity, str], ...] = (
    (
        "Z1",
        "O",
        "The zeta-DP paper gives each component of its complex noise twice its true deviation; here std is that of one real component.",
    ),
    (
        "Z2",
        "O",
        "Its (epsilon, delta) theorem uses mu = D/sigma where its own noise has sqrt(2) D/sigma; here mu is D/std per real component.",
    ),
    ("Z5", "O", "Its Renyi theorem asks for half the noise variance that is needed; here the divergence is order D^2 / (2 std^2)."),
    ("Z7", "O", "Its Gaussian-DP theorem is off by the same sqrt(2); here mu is D/std per real component."),
    (
        "Z8",
        "O",
        "A bound on a function's slope isn't its sensitivity to one record; here sensitivity is the clipping bound of one record's term.",
    ),
    ("Z10", "O", "Its Algorithm 1, read literally, adds noise of std sigma B / sqrt(2) per component; this run adds the std stated above."),
    ("Z11", "O", "Dividing by a sample's realised size reveals that size; this run divides by the expected batch, a public constant."),
    (
        "Z12",
        "O",
        "Samples of a fixed size cost far more than Poisson samples of the same rate; this run samples by Poisson and is accounted so.",
    ),
    (
        "Z13",
        "O",
        "Epsilon from a central limit theorem isn't an upper bound (it came out a fifth too small); here every figure is the "
        "safe end of a bracket, whose rounding is proved or allowed for as the floating-point caveat says for its route.",
    ),
    ("Z15", "W", "Wirtinger gradients don't lower the noise that privacy needs; this run clips the full real gradient of each record."),
    ("Z19", "O", "Pairing images with replacement puts one image into several records; a guarantee per record isn't one per image then."),
    ("Z20", "o", "A guarantee per slice says nothing per patient; the unit of this certificate is the one it names."),
    (
        "Z22",
        "O",
        "A gradient that isn't finite slips through printed clipping and marks its record; it must count as zero before clipping.",
    ),
    ("C1", "OK", "The complex Gaussian of Riess et al. has the stated variance on each real component; that is the convention here."),
    ("C3", "L", "Their Theorem 1 is valid but loose; here mu is the largest that the stated sensitivities allow, which is attained."),
    ("C6", "L", "Unequal or correlated components need the worst direction of the move; here mu is computed along it."),
    ("C9", "O", "The same noise costs twice the mu when a record is replaced rather than added or removed; the adjacency is named above."),
    ("C10", "O", "A guarantee per image isn't one per patient who has many; the unit of this certificate is the one it names."),
    (
        "C11",
        "o",
        "Its delta of 1e-3 is below one over the patients and above one over their images, and a delta above 1/n allows "
        "publishing a random unit whole; compare the delta certified here with the number of units stated here.",
    ),
    ("C18", "OK", "Their Algorithm 1 (std sigma B per component, divided by the expected batch) is right under add or remove."),
    (
        "S1",
        "W",
        "A second derivative is printed with the wrong sign; here every expansion is of the loss itself, whose derivatives are right.",
    ),
    ("S2", "W", "The printed expansion loses the factor 1/2 of its second-order term; here it is there."),
    (
        "S3",
        "W",
        "SPOF's printed expansion makes its second-order coefficient depend on the record; the right one is public, and only "
        "that of z is private and noised.",
    ),
    (
        "S4",
        "W",
        "No constant bounds all derivatives of the loss, as its Proposition 1 wants; here nothing of privacy rests on the remainder.",
    ),
    ("S5", "L", "Its sensitivity 3 n / 2 counts a public coefficient; here only what depends on the record is in the sensitivity."),
    (
        "S6",
        "L",
        "Its noise for the summed coefficients is three times what their sensitivity asks for; here it is that of the sensitivity.",
    ),
    (
        "S7",
        "O",
        "Its Algorithm 1 puts one coefficient's noise on two and spends sqrt(2) epsilon; here every released number is in the "
        "l1 sensitivity that is charged.",
    ),
    ("S8", "O", "Splitting a Laplace scale as if variances added doubles epsilon; here every Laplace release is charged l1 / scale."),
    (
        "S9",
        "O",
        "Without a public box a record's sensitivity is infinite, and a scale taken from the data is a release; here the box is "
        "part of the mechanism, and values outside are refused.",
    ),
    ("S10", "W", "A stabilisation constant is expanded wrongly; here a public constant changes no coefficient that depends on the record."),
    (
        "S11",
        "L",
        "Its sensitivity with a stabilisation constant is that of a wrongly expanded loss; in the right one a public constant "
        "leaves the coefficients of z at n.",
    ),
    ("S12", "N", "A factor of 2 is misplaced in the sensitivity with a constant; no such formula is used here."),
    (
        "S13",
        "O",
        "A stabilisation constant computed from the record's own code puts the record into the noise's scale, which is private "
        "at no epsilon; here it is a public number.",
    ),
    (
        "S14",
        "O",
        "Noise on a loss's coefficients protects nothing while gradients use the raw record; only what was computed from the "
        "released records alone is covered here.",
    ),
    (
        "S15",
        "O",
        "Its decoder's owner gets codes of raw records, which no noise protects; here codes are of released records, or aren't released.",
    ),
    ("S16", "O", "Fresh noise at every pass is a release at every pass; here each one is counted, and so is every record of a unit."),
    (
        "S17",
        "W",
        "The functional mechanism isn't its special case: that perturbs sums over all records, once; this certificate says "
        "which was released.",
    ),
    ("S18", "o", "Its parallel composition holds across people for one release each; here every row of one unit is charged to that unit."),
    ("S19", "W", "A coefficient of the aggregated loss is printed with b instead of b^2; no such formula is used here."),
    (
        "S20",
        "O",
        "Scaling coefficients by a record's own factor b is said to lower their sensitivity; here nothing private scales what is released.",
    ),
    ("S21", "O", "Shrinking the noise by a factor that depends on the record is private at no epsilon; here the noise's scale is public."),
    ("S22", "W", "The law of an environmental noise is printed wrongly; here no noise counts but what the service draws."),
    ("S23", "W", "A variance is printed with a norm instead of its square; here no noise counts but what the service draws."),
    (
        "S24",
        "O",
        "Environmental noise is said to lower what is needed with probability 1/2, which is at most 2^-records; here it earns no discount.",
    ),
    ("S25", "W", "A loss bound is printed with misplaced terms; here nothing of privacy rests on it."),
    ("S26", "L", "Its sensitivity depends on the expansion point; that of everything a gradient sees is n at every point."),
    (
        "S27",
        "O",
        "Its sensitivity of a gradient is too small for negative expansion points; here it is the bound that gradients are clipped to.",
    ),
    ("S28", "L", "Its l1 sensitivity of a clipped gradient is loose; here it is that of the norm that is clipped."),
    ("S29", "O", "A noise scale chosen by a gradient's private norm is private at no epsilon; here one public scale serves every step."),
    ("S30", "O", "Clipping before scaling by b leaves b times the sensitivity; here nothing is scaled between clipping and noise."),
    (
        "S31",
        "O",
        "Its DP-SGD clips the gradient at the output alone, and the weights' gradients still show the record; here whole "
        "gradients are clipped.",
    ),
    ("S32", "OK", "Its counts of operations reproduce; they say nothing of privacy."),
    (
        "S33",
        "o",
        "Its constant is chosen by accuracy on private data, which nothing pays for; what a choice here costs stands among what "
        "isn't covered.",
    ),
    (
        "P1",
        "O",
        "Real noise on complex coefficients leaves their imaginary parts bare; here the noise is white in the real coordinates kept.",
    ),
    ("P2", "O", "Complex noise is easily given half its variance per component; here std always means one real component."),
    (
        "P3",
        "W",
        "Its law of the noise in time is that of other noise; the variance ratios stated here are of real white noise after the filter.",
    ),
    (
        "P4",
        "W",
        "A real signal's first K frequencies are min(2 K - 1, N) real numbers, not K; the noise is counted so, and isn't part of mu.",
    ),
    ("P5", "W", "In two dimensions that count is the product over both axes, not K^2; it isn't part of mu either."),
    ("P6", "N", "Its filtering ratio is printed with the wrong sign; here the kept frequencies are stated as numbers."),
    ("P7", "O", "Clipping a query to S gives it sensitivity 2S, not S; here only sums of clipped per-record terms have sensitivity S."),
    ("P8", "O", "Noise for adding or removing a record is too small for replacing one; the adjacency is named above."),
    ("P9", "O", "Its algorithms add noise to the tensor before clipping; here only clipped terms are added up and noised."),
    ("P10", "O", "A stray division makes every layer's gradient longer than its bound; here a layer's part has at most the bound stated."),
    ("P11", "o", "The classic sqrt(2 ln(1.25/delta)) / epsilon fails for large epsilon; it is never used here, only the exact formula."),
    ("P12", "O", "Its conversion between Renyi and (epsilon, delta) goes the wrong way; here each figure is computed from the event."),
    ("P13", "L", "It leaves out what sampling is worth; here the samples are in the accounting."),
    (
        "P14",
        "o",
        "Its smaller epsilon is that of stopping earlier, and the epoch was chosen by accuracy; here all steps that were "
        "released are counted.",
    ),
    (
        "P15",
        "OK",
        "Bounds by layer with noise for the root of the sum of their squares are right and tight: mu is one over the noise multiplier.",
    ),
    ("P16", "O", "Noise fit for a clipped signal is too small for its unnormalised transform; here every transform is unitary."),
    ("P17", "W", "A gradient formula misses a complex conjugate; here gradients are those of the network."),
    ("P18", "L", "Padding before clipping biases more than cropping first, and is as private; the lengths of both are stated here."),
    ("P19", "L", "Filtering before clipping is as private and keeps more; here sensitivity may be stated for the filtered query."),
    ("P20", "U", "Filtering doesn't reduce the noise that privacy needs: it is DP-SGD with a low-pass filter; here it earns no privacy."),
    ("P21", "W", "Its circulant matrix is a correlation where a convolution is meant; that is a matter of the network, not of privacy."),
    ("P22", "o", "Dividing by the batch is right with the constant one; this run divides by the expected batch, not by the realised size."),
    ("P23", "N", "Some definitions are misprinted; here they are those of the field."),
    ("P24", "o", "Biases, statistics of the data and searches are left out there; here every trained parameter is in the clipped vector."),
    (
        "O1",
        "O",
        "The obfuscation paper's k-anonymity is a critic's loss, not k-anonymity, and no guarantee; here only the noise is counted.",
    ),
    ("O2", "O", "Its equation (2) has a modulus that would tell the angle to everybody; here x = e^(i theta) (a + i b)."),
    ("O3", "O", "One angle for a whole feature is a key of about 7 bits, which can be tried out; here nothing rests on it."),
    ("O4", "OK", "A feature turned back by a wrong angle is a cos(d) - b sin(d), as printed."),
    (
        "O5",
        "O",
        "Without noise a candidate input is confirmed exactly from the plane that is sent; here the feature has noise before that.",
    ),
    ("O6", "O", "Without noise two encodings of one input give its feature away; here every query has fresh noise, and each is counted."),
    ("O7", "O", "The angle can be estimated from one feature; the figures here hold for somebody who is told it."),
    ("O8", "OK", "Only features without mean and skew of any kind could hide the angle; nothing here relies on that."),
    ("O9", "U", "Its score of angle errors can't tell an attacker's success from failure; the attack table scores both quadratures."),
    ("O10", "O", "A bound on one critic's loss bounds no attacker; here the noise does, whatever the attacker is."),
    ("O11", "O", "Another person's feature as counterpart exposes two for one; here the counterpart is a public record's, or made up."),
    (
        "O12",
        "O",
        "The cloud can read the answer as the owner does; here the answer follows from a noisy feature, and hides no more than that.",
    ),
    ("O13", "o", "Norms by statistics of a batch make one user's feature depend on another's; here they are frozen after training."),
    ("O14", "N", "Max-pooling by magnitude isn't linear, as printed, but turns with its input all the same."),
    ("O15", "N", "Real and imaginary part must be dropped together; here one mask serves both."),
    ("O16", "OK", "The activation, convolutions without bias and skips turn with their input, as printed."),
    ("O17", "N", "Its angles and noise levels are stated in two ways; here angles are uniform on the whole circle."),
    (
        "O18",
        "U",
        "An attacker who is right more often than by chance has learned something; the attack table says how much, with intervals.",
    ),
    ("O19", "OK", "What later layers tell follows from what the encoder sends."),
)
