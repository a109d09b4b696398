"""The benchmarks: this receiver and its peers, with the same bytes, into the same sink. `make bench`."""
