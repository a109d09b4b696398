"""Web shop that sends traces, for the demo and for tests."""
