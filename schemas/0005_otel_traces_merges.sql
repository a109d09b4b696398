-- Merges combine more parts at a time, so a span is rewritten less often; the number of parts stays about
-- the same.
ALTER TABLE otel_traces MODIFY SETTING merge_selector_base = 12 -- if merge_base
