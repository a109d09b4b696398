"""Supervisor: starts, monitors, reloads and stops intakes and store process, and serves the admin port."""
