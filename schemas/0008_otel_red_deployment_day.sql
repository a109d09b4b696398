-- Rows of otel_red_deployment added up by day: see otel_red_day.
CREATE TABLE IF NOT EXISTS otel_red_deployment_day AS otel_red_deployment
