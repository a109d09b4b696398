-- Merges take more parts at a time, so a span is written again less often; the parts are about as many.
ALTER TABLE otel_traces MODIFY SETTING merge_selector_base = 12 -- if merge_base
