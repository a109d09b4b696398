"""Test kit of the receiver: emulator of the hosting platform, web shop, demo, load harness."""
