"""Commands of the hosting platform's side."""
