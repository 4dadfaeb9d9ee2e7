"""The recovery of a turn: what was tried when its request was refused, in words and drawn."""
