"""Durable files: functions that write, sync, rename and delete, behind one interface for fault injection."""
