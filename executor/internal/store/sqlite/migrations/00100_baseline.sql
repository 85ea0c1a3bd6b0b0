-- The tables of the first release. Times are microseconds since 1970, UTC.

-- A program looks here before each of its transactions: it goes on with the tables of a newer
-- version if that version's migration has put its number here, and waits otherwise.
CREATE TABLE harmless (version bigint PRIMARY KEY);

-- Dictionaries: rows are added, never changed or deleted, so that processes can remember their
-- numbers.
CREATE TABLE workflows (
    workflow    INTEGER PRIMARY KEY,
    workflow_id TEXT NOT NULL UNIQUE
) STRICT;
CREATE TABLE origins (
    origin     INTEGER PRIMARY KEY,
    workflow   INTEGER NOT NULL REFERENCES workflows,
    node_id    TEXT    NOT NULL,
    account_id TEXT    NOT NULL,
    queue      TEXT    NOT NULL,
    source     TEXT    NOT NULL,
    token_id   TEXT    NOT NULL,
    sender     TEXT    NOT NULL,
    verified   INTEGER NOT NULL,
    UNIQUE (workflow, node_id, account_id, queue, source, token_id, sender, verified)
) STRICT;
-- A list that is filtered by account or source looks up the origins first.
CREATE INDEX origins_account ON origins (account_id, source);
CREATE INDEX origins_source ON origins (source);

-- Recording is most of the work of hookstart, so a row is narrow: what many records have in common
-- is in origins, an ID has 16 bytes, and no index is kept that a computed ID can replace.
CREATE TABLE executions (
    seq             INTEGER PRIMARY KEY, -- the order of arrival
    id              BLOB    NOT NULL,    -- the 16 bytes of the UUID
    workflow        INTEGER NOT NULL,
    origin          INTEGER NOT NULL,
    status          INTEGER NOT NULL,    -- see relational.StatusCode: 4 is failed, 5 rejected
    accepted_at     INTEGER NOT NULL,
    recorded_after  INTEGER NOT NULL,    -- microseconds after accepted_at, as the next two
    started_after   INTEGER,
    finished_after  INTEGER,
    body_bytes      INTEGER NOT NULL,
    stream_sequence INTEGER NOT NULL,
    content_type    TEXT,                -- NULL: application/json
    delivery_id     TEXT,                -- one whose hash is the ID
    other_delivery  TEXT,                -- any other one
    rerun_of        TEXT,
    replay_of       TEXT,
    requeued_as     TEXT,
    dismissed_at    INTEGER,             -- NULL: not dismissed
    error           TEXT,
    output          BLOB,
    attempts        INTEGER,             -- the number of the attempt that runs or ended it; NULL: not known
    cancel_requested_at INTEGER          -- when an operator asked that it ends
) STRICT;
CREATE UNIQUE INDEX executions_id ON executions (id);
-- Every list is in the order of (accepted_at, id), read backwards. Few records have the same
-- accepted_at: they are sorted. A filter by account or source reads the index alone until it finds
-- a record: 1,000,000 records of other accounts are skipped in a fraction of the time that it takes
-- to read them.
CREATE INDEX executions_time ON executions (accepted_at, origin);
CREATE INDEX executions_workflow ON executions (workflow, accepted_at);
-- A delivery ID whose hash is the ID is found by that, at the nodes of origins.
CREATE INDEX executions_delivery ON executions (other_delivery) WHERE other_delivery IS NOT NULL;
-- What an operator looks for among many that went well. It costs nothing until a record fails.
CREATE INDEX executions_trouble ON executions (status, accepted_at) WHERE status IN (4, 5);
-- Dead letters: what failed and was neither requeued nor dismissed.
CREATE INDEX executions_dead_letters ON executions (accepted_at)
    WHERE status = 4 AND requeued_as IS NULL AND dismissed_at IS NULL;
CREATE INDEX executions_dead_letters_of ON executions (workflow, accepted_at)
    WHERE status = 4 AND requeued_as IS NULL AND dismissed_at IS NULL;
-- It finds the canceled executions, too: they always have that time. An index on the status would
-- be written to by every step.
CREATE INDEX executions_canceled ON executions (accepted_at) WHERE cancel_requested_at IS NOT NULL;

-- Apart from executions: a count can come before its record, and adding to it writes no record.
CREATE TABLE duplicate_counts (
    id         BLOB    NOT NULL PRIMARY KEY, -- of the execution, as in executions
    duplicates INTEGER NOT NULL,
    counted_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX duplicate_counts_by_time ON duplicate_counts (counted_at);

CREATE TABLE duplicate_reports (
    report_id   TEXT    NOT NULL PRIMARY KEY,
    reported_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX duplicate_reports_by_time ON duplicate_reports (reported_at);

-- What runners reported of executions that are not recorded yet. Positions grow in the order in
-- which it came.
CREATE TABLE early_progress (
    execution_id TEXT    NOT NULL,
    queue        TEXT    NOT NULL,
    workflow_id  TEXT    NOT NULL,
    status       TEXT    NOT NULL,
    at           INTEGER NOT NULL,
    error        TEXT    NOT NULL,
    output       BLOB,
    position     INTEGER NOT NULL,
    kept_at      INTEGER NOT NULL,
    started_at   INTEGER,                    -- a final report names the start, too; NULL: it does not
    attempt      INTEGER NOT NULL DEFAULT 0, -- 0: not known
    PRIMARY KEY (execution_id, queue, workflow_id, status)
) STRICT;
CREATE INDEX early_progress_by_position ON early_progress (position);

-- Messages that cannot be decoded or recorded. Each stream has sequences of its own: the subject
-- says which stream it is.
CREATE TABLE unreadable (
    stream_sequence INTEGER NOT NULL,
    subject         TEXT    NOT NULL,
    reason          TEXT    NOT NULL,
    at              INTEGER NOT NULL,
    dismissed_at    INTEGER, -- NULL: not dismissed
    PRIMARY KEY (stream_sequence, subject)
) STRICT;
CREATE INDEX unreadable_by_time ON unreadable (at);

-- The messages of each stream that are recorded or quarantined: how far this database is. Rows are
-- added in the transaction that records the messages, and merged now and then.
CREATE TABLE decided (
    stream         text    NOT NULL,
    created        text    NOT NULL,
    first_sequence integer NOT NULL,
    last_sequence  integer NOT NULL
) STRICT;

CREATE TABLE token_uses (
    token_id     TEXT    NOT NULL PRIMARY KEY,
    last_used_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What ingresses and executors count by the minute.
CREATE TABLE minutes (
    minute INTEGER NOT NULL,
    kind   TEXT    NOT NULL,
    n      INTEGER NOT NULL,
    PRIMARY KEY (minute, kind)
) STRICT, WITHOUT ROWID;

CREATE TABLE refusals (
    workflow_id TEXT    NOT NULL,
    minute      INTEGER NOT NULL,
    code        TEXT    NOT NULL,
    n           INTEGER NOT NULL,
    last_at     INTEGER NOT NULL,
    body_bytes  INTEGER NOT NULL,
    user_agent  TEXT    NOT NULL,
    PRIMARY KEY (workflow_id, minute, code)
) STRICT, WITHOUT ROWID;
CREATE INDEX refusals_by_minute ON refusals (minute);

-- What was last seen of the sender of a trigger node; a time of 0: never.
CREATE TABLE senders_seen (
    workflow_id    TEXT    NOT NULL,
    node_id        TEXT    NOT NULL,
    verified_at    INTEGER NOT NULL,
    handshake_at   INTEGER NOT NULL,
    refused_at     INTEGER NOT NULL,
    refused_code   TEXT    NOT NULL,
    refused_reason TEXT    NOT NULL,
    deliveries     INTEGER NOT NULL,
    without_id     INTEGER NOT NULL,
    refused        INTEGER NOT NULL,
    PRIMARY KEY (workflow_id, node_id)
) STRICT, WITHOUT ROWID;

-- The requests that did not meet the filter of a trigger node: how many, and the last ones as JSON.
CREATE TABLE filtered (
    workflow_id   TEXT    NOT NULL,
    node_id       TEXT    NOT NULL,
    filtered      INTEGER NOT NULL,
    last_requests TEXT    NOT NULL,
    PRIMARY KEY (workflow_id, node_id)
) STRICT, WITHOUT ROWID;

-- Who changed what. changes are a JSON text, or empty.
CREATE TABLE audit (
    id          TEXT    NOT NULL PRIMARY KEY,
    at          INTEGER NOT NULL,
    actor_kind  TEXT    NOT NULL,
    actor_id    TEXT    NOT NULL,
    actor_name  TEXT    NOT NULL,
    action      TEXT    NOT NULL,
    account_id  TEXT    NOT NULL,
    workflow_id TEXT    NOT NULL,
    node_id     TEXT    NOT NULL,
    changes     TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX audit_by_time ON audit (at, id);
CREATE INDEX audit_by_account ON audit (account_id, at, id);
CREATE INDEX audit_by_workflow ON audit (workflow_id, at, id);

-- The identity of the installation: one row, or none.
CREATE TABLE installation (
    only_one INTEGER NOT NULL PRIMARY KEY CHECK (only_one = 1),
    id       TEXT    NOT NULL
) STRICT;

-- A copy of every record of the registry, as NATS has it. A record that was deleted stays, so that
-- no earlier revision comes back.
CREATE TABLE registry_copy (
    bucket   TEXT    NOT NULL,
    key      TEXT    NOT NULL,
    revision INTEGER NOT NULL,
    deleted  INTEGER NOT NULL,
    data     BLOB    NOT NULL,
    PRIMARY KEY (bucket, key)
) STRICT, WITHOUT ROWID;

-- The revision up to which the copy has each bucket, and when NATS stored that one.
CREATE TABLE registry_position (
    bucket   TEXT    NOT NULL PRIMARY KEY,
    revision INTEGER NOT NULL,
    at       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Sessions of the console that were ended before their time.
CREATE TABLE ended_sessions (id text PRIMARY KEY, until INTEGER NOT NULL);

-- The operator events of accounts. A cause is an occurrence that operators are told of. An event
-- tells of one or more causes, and starts an execution. A condition is a state that operators were
-- told of, until it ends. event_lead has one row: the executor that looks for conditions.
CREATE TABLE event_causes (
    id           TEXT    NOT NULL PRIMARY KEY,
    account_id   TEXT    NOT NULL,
    kind         TEXT    NOT NULL,
    workflow_id  TEXT    NOT NULL,
    execution_id TEXT    NOT NULL,
    queue        TEXT    NOT NULL,
    at           INTEGER NOT NULL,
    about        TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX event_causes_by_time ON event_causes (at, id);
CREATE INDEX event_causes_by_group ON event_causes ((kind || ':' || account_id), at, id);
CREATE TABLE operator_events (
    id           TEXT    NOT NULL PRIMARY KEY,
    account_id   TEXT    NOT NULL,
    kind         TEXT    NOT NULL,
    workflow_id  TEXT    NOT NULL,
    node_id      TEXT    NOT NULL,
    input        TEXT    NOT NULL,
    decided_at   INTEGER NOT NULL,
    published_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX operator_events_by_time ON operator_events (decided_at, id);
CREATE TABLE event_conditions (
    account_id TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    subject    TEXT    NOT NULL,
    since      INTEGER NOT NULL,
    PRIMARY KEY (account_id, kind, subject)
) STRICT, WITHOUT ROWID;
CREATE TABLE event_lead (
    caller TEXT    NOT NULL,
    until  INTEGER NOT NULL
) STRICT;
INSERT INTO event_lead VALUES ('', 0);
