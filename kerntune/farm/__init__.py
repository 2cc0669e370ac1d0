"""The compile farm: persistent compiling processes in which a crash costs one candidate."""

from kerntune.farm.farm import Farm, NotStarted
from kerntune.farm.process import Died

__all__ = ["Died", "Farm", "NotStarted"]
