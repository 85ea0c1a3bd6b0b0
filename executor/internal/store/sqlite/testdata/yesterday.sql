-- What a database of the first release holds. storetest.TestFirstReleaseSchema says what it must read as.
INSERT INTO workflows (workflow, workflow_id) VALUES (1, 'workflow');
INSERT INTO origins (origin, workflow, node_id, account_id, queue, source, token_id, sender, verified)
    VALUES (1, 1, 'node', 'account', 'default', 'webhook', 'token', '', 0);
INSERT INTO executions (id, workflow, origin, status, accepted_at, recorded_after, started_after, finished_after, body_bytes,
    stream_sequence, other_delivery, error)
VALUES
    (x'00000000000080008000000000000000', 1, 1, 1, 1772366400123456, 1000, NULL, NULL, 2, 1, 'delivery 0', NULL),
    (x'00000001000080008000000000000001', 1, 1, 4, 1772366401123456, 1000, 1000000, 2000000, 3, 2, 'delivery 1', 'an error');
INSERT INTO duplicate_reports (report_id, reported_at) VALUES ('report', 1772366400123456);
INSERT INTO duplicate_counts (id, duplicates, counted_at) VALUES (x'00000000000080008000000000000000', 3, 1772366400123456);
INSERT INTO token_uses (token_id, last_used_at) VALUES ('token', 1772366400123456);
INSERT INTO unreadable (stream_sequence, subject, reason, at) VALUES (7, 'executions.start.a.b.c', 'not known', 1772366400123456);
