-- What the first version left: never changed. storetest.Yesterday says what it must read as.
INSERT INTO executions (id, account_id, workflow_id, node_id, queue, source, status, delivery_id, rerun_of, token_id,
    accepted_at, recorded_at, started_at, finished_at, content_type, body_bytes, stream_sequence, error, output)
VALUES
    ('00000000-0000-8000-8000-000000000000', 'account', 'workflow', 'node', 'default', 'webhook', 'queued', 'delivery 0', '', 'token',
     1772366400123456, 1772366400124456, NULL, NULL, 'application/json', 2, 1, '', NULL),
    ('00000001-0000-8000-8000-000000000001', 'account', 'workflow', 'node', 'default', 'webhook', 'failed', 'delivery 1', '', 'token',
     1772366401123456, 1772366401124456, 1772366402123456, 1772366403123456, 'application/json', 3, 2, 'an error', NULL);
INSERT INTO duplicate_reports (report_id, reported_at) VALUES ('report', 1772366400123456);
INSERT INTO duplicate_counts (execution_id, duplicates, counted_at) VALUES ('00000000-0000-8000-8000-000000000000', 3, 1772366400123456);
INSERT INTO token_uses (token_id, last_used_at) VALUES ('token', 1772366400123456);
INSERT INTO unreadable (stream_sequence, subject, reason, at) VALUES (7, 'executions.start.a.b.c', 'nobody knows', 1772366400123456);
