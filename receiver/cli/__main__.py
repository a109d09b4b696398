"""`python -m receiver.cli`: the same as `trace-drain`."""

from receiver.cli import main

main(prog_name="trace-drain")
