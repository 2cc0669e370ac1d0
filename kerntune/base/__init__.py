"""Plain values, arithmetic and codecs: no GPU, no compiler, no torch."""
