-- Roles on a ClickHouse server, each with the rights that it needs and no others: docs/operations.md#roles-on-a-clickhouse-server.
--
-- Run the file as a user with access management (clickhouse client --queries-file roles.sql), then create users:
--   CREATE USER schema_owner IDENTIFIED BY '…'; GRANT trace_drain_schema TO schema_owner;
--   CREATE USER ingest IDENTIFIED BY '…'; GRANT trace_drain_writer TO ingest;
--   CREATE USER reader IDENTIFIED BY '…'; GRANT trace_drain_reader TO reader;
-- `otel` is the database of the receiver (store.database). On a cluster, add ON CLUSTER NAME to each statement.
-- Before ClickHouse 24.10, grants know no prefixes: replace otel_* and trace_drain_trial_* by *.

-- Schema owner: `trace-drain schema apply`. The owner of the materialized view also reads and fills its tables, for every INSERT.
CREATE ROLE IF NOT EXISTS trace_drain_schema;
GRANT CREATE DATABASE, CREATE TABLE, CREATE VIEW, DROP TABLE, ALTER, SELECT, INSERT ON otel.* TO trace_drain_schema;
GRANT SELECT ON system.merge_tree_settings TO trace_drain_schema;
-- on a cluster (store.cluster)
GRANT CLUSTER, REMOTE, CREATE TEMPORARY TABLE ON *.* TO trace_drain_schema;
GRANT SELECT ON system.clusters TO trace_drain_schema;
GRANT SELECT ON system.macros TO trace_drain_schema;

-- Writer: `trace-drain serve`, with the pages and the API. It changes no table: apply the schema before a new version starts.
-- A replay of dead letters tries them on a table of its own. A user needs no right to end its own queries.
CREATE ROLE IF NOT EXISTS trace_drain_writer;
GRANT SELECT, INSERT ON otel.otel_* TO trace_drain_writer;
GRANT SELECT ON otel.trace_drain_migrations TO trace_drain_writer;
GRANT CREATE TABLE, DROP TABLE, INSERT ON otel.trace_drain_trial_* TO trace_drain_writer;
GRANT SELECT ON system.keywords TO trace_drain_writer;
GRANT SELECT ON system.merge_tree_settings TO trace_drain_writer;
GRANT SELECT ON system.parts TO trace_drain_writer;
GRANT SELECT ON system.processes TO trace_drain_writer;
-- on a cluster (store.cluster)
GRANT CLUSTER, REMOTE, CREATE TEMPORARY TABLE ON *.* TO trace_drain_writer;
GRANT SELECT ON system.clusters TO trace_drain_writer;
-- `trace-drain rollup rebuild`
GRANT TRUNCATE ON otel.otel_attribute_keys TO trace_drain_writer;
GRANT TRUNCATE ON otel.otel_attribute_values TO trace_drain_writer;
GRANT TRUNCATE ON otel.otel_calls TO trace_drain_writer;
GRANT TRUNCATE ON otel.otel_deployments TO trace_drain_writer;
GRANT TRUNCATE ON otel.otel_errors TO trace_drain_writer;
GRANT TRUNCATE ON otel.otel_red TO trace_drain_writer;
GRANT TRUNCATE ON otel.otel_red_day TO trace_drain_writer;
GRANT TRUNCATE ON otel.otel_red_deployment TO trace_drain_writer;
GRANT TRUNCATE ON otel.otel_red_deployment_day TO trace_drain_writer;
GRANT TRUNCATE ON otel.otel_rollup_slots TO trace_drain_writer;
-- the same on a cluster
GRANT TRUNCATE ON otel.otel_attribute_keys_local TO trace_drain_writer;
GRANT TRUNCATE ON otel.otel_attribute_values_local TO trace_drain_writer;
GRANT TRUNCATE ON otel.otel_calls_local TO trace_drain_writer;
GRANT TRUNCATE ON otel.otel_deployments_local TO trace_drain_writer;
GRANT TRUNCATE ON otel.otel_errors_local TO trace_drain_writer;
GRANT TRUNCATE ON otel.otel_red_local TO trace_drain_writer;
GRANT TRUNCATE ON otel.otel_red_day_local TO trace_drain_writer;
GRANT TRUNCATE ON otel.otel_red_deployment_local TO trace_drain_writer;
GRANT TRUNCATE ON otel.otel_red_deployment_day_local TO trace_drain_writer;
GRANT TRUNCATE ON otel.otel_rollup_slots_local TO trace_drain_writer;

-- Reader of all projects: Grafana and SQL.
CREATE ROLE IF NOT EXISTS trace_drain_reader;
GRANT SELECT ON otel.otel_* TO trace_drain_reader;

-- Operator: finds out what the server does, and ends queries of others.
CREATE ROLE IF NOT EXISTS trace_drain_operator;
GRANT SELECT ON otel.* TO trace_drain_operator;
GRANT SELECT ON system.* TO trace_drain_operator;
GRANT KILL QUERY ON *.* TO trace_drain_operator;

-- With users_without_row_policies_can_read_rows = false, a policy hides all rows from every other user. A writer that
-- does not find the rows of a segment inserts them again, so it needs this policy before the first other one.
CREATE ROW POLICY IF NOT EXISTS trace_drain_all_rows ON otel.otel_traces
    FOR SELECT USING 1
    TO trace_drain_schema, trace_drain_writer, trace_drain_reader, trace_drain_operator;

-- Reader of one project: an example, one role and one policy for each project. It reads no other table, because those
-- contain trace ids, names and counts of all projects.
CREATE ROLE IF NOT EXISTS trace_drain_project_example;
GRANT SELECT ON otel.otel_traces TO trace_drain_project_example;
CREATE ROW POLICY IF NOT EXISTS trace_drain_project_example ON otel.otel_traces
    FOR SELECT USING ProjectId = 'prj_example' TO trace_drain_project_example;
