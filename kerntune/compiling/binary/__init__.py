"""Compiled kernels as bytes and text: what they contain, and when two are the same code.

ELF files read without the vendor's tools, hashes that leave names, paths and debug information out, and the compiler's
stages as texts. Nothing is compiled or executed here, and no figure is judged: that is :mod:`kerntune.static`.
"""
