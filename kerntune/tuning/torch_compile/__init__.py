"""Tuned kernels in graphs that ``torch.compile`` makes: each call is launched with kerntune's winner for its own key.

A module belongs here if it is about what a traced call becomes, or what a graph's operator launches. torch's private
parts are in :mod:`kerntune.kernels.compat.torch_private` alone; how a winner is found is the rest of
:mod:`kerntune.tuning`. Nothing here is imported before torch has loaded Dynamo.
"""
