"""The loader: from a file, the environment and flags to one complete, checked, frozen `Settings`.

knobs      every key that can be said, and the type of its value
sources    what was said, where: file, environment, flags
values     one said value → a setting: sizes, secrets read from files, paths
checks     what settings must be to each other
load       the whole way, all problems told at once
show       every key, its value, and who said it
"""
