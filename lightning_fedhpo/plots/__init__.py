"""Figures of a run or a sweep, drawn with matplotlib from a result or a folder."""
