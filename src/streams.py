"""Numbers that keep the random streams of one seed apart: `default_rng((seed, SHUFFLE, ...))`."""

SHUFFLE, AUGMENT, LAMBDA, FEW_SHOT, DROPOUT = 0, 1, 2, 4, 5
