"""Loader of settings: from a file, the environment and flags to one complete, checked, frozen `Settings`.

`sources` reads text, `values` and `ranges` convert and check each value, `checks` compares settings with each
other and with this machine, and `load` runs all of these and reports all problems together.
"""
