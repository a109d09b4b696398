"""The hosting platform's side: optional, loaded only if `[platform]` is configured."""
