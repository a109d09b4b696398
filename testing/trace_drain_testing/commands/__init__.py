"""Commands of the test kit, one file each."""
