"""Numbers that keep the random streams of one seed apart: `default_rng((seed, SHUFFLE, ...))`."""

SHUFFLE, AUGMENT, LAMBDA, PARTNERS, FEW_SHOT = range(5)
