"""The earlier place of :mod:`kerntune.gpu`: only what users import is left, forwarded."""
