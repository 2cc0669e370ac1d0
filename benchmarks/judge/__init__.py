"""Is a judge of kernels cheated, and does it judge honest kernels?"""
