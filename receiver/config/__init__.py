"""Loader of settings: from a file, the environment and flags to one complete, checked, frozen `Settings`.

keys       every configurable key and the type of its value
sources    reads the values from file, environment and flags
values     converts one value: sizes, secrets read from files, paths
ranges     checks one value against its range
checks     checks settings against each other and against this machine
load       runs all of these and reports all problems together
show       prints every key, its value and its origin
"""
