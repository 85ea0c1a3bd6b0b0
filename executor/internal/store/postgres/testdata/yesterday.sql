-- What a database of the first release holds. storetest.TestFirstReleaseSchema says what it must read as.
INSERT INTO workflows (workflow_id) VALUES ('workflow');
INSERT INTO origins (workflow, node_id, account_id, queue, source, token_id, sender, verified)
    VALUES (1, 'node', 'account', 'default', 'webhook', 'token', '', false);
INSERT INTO executions (id, workflow, origin, status, accepted_at, recorded_after, started_after, finished_after, body_bytes,
    stream_sequence, other_delivery, error)
VALUES
    ('\x00000000000080008000000000000000', 1, 1, 1, '2026-03-01T12:00:00.123456Z', 1000, NULL, NULL, 2, 1, 'delivery 0', NULL),
    ('\x00000001000080008000000000000001', 1, 1, 4, '2026-03-01T12:00:01.123456Z', 1000, 1000000, 2000000, 3, 2, 'delivery 1', 'an error');
INSERT INTO duplicate_reports (report_id, reported_at) VALUES ('report', '2026-03-01T12:00:00.123456Z');
INSERT INTO duplicate_counts (id, duplicates, counted_at) VALUES ('\x00000000000080008000000000000000', 3, '2026-03-01T12:00:00.123456Z');
INSERT INTO token_uses (token_id, last_used_at) VALUES ('token', '2026-03-01T12:00:00.123456Z');
INSERT INTO unreadable (stream_sequence, subject, reason, at) VALUES (7, 'executions.start.a.b.c', 'not known', '2026-03-01T12:00:00.123456Z');
