"""Several implementations of one operation: whole callables that are raced per key, and the fastest is called.

What a key is, what a call is decided on, verifying and racing implementations, and what is stored of it. How a single
kernel is tuned is not here: implementations tune what they launch by themselves.

``choice_place`` is small because it is light: the gate loads it without torch.
"""
