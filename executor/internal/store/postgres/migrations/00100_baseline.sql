-- The tables of the first release. Keys are COLLATE "C": they sort by their bytes whatever the
-- database's language is, which is the order that lists promise and in which executors lock rows.

-- A program looks here before each of its transactions: it goes on with the tables of a newer
-- version if that version's migration has put its number here, and waits otherwise.
CREATE TABLE harmless (version bigint PRIMARY KEY);

-- Dictionaries: rows are added, never changed or deleted, so that processes can remember their
-- numbers.
CREATE TABLE workflows (
    workflow    integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workflow_id text COLLATE "C" NOT NULL UNIQUE
);
CREATE TABLE origins (
    origin     integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workflow   integer NOT NULL REFERENCES workflows,
    node_id    text COLLATE "C" NOT NULL,
    account_id text COLLATE "C" NOT NULL,
    queue      text COLLATE "C" NOT NULL,
    source     text COLLATE "C" NOT NULL,
    token_id   text COLLATE "C" NOT NULL,
    sender     text COLLATE "C" NOT NULL,
    verified   boolean NOT NULL,
    UNIQUE (workflow, node_id, account_id, queue, source, token_id, sender, verified)
);
-- A list that is filtered by account or source looks up the origins first.
CREATE INDEX origins_account ON origins (account_id, source);
CREATE INDEX origins_source ON origins (source);

-- Recording is most of the work of hookstart, so a row is narrow: what many records have in common
-- is in origins, an ID has 16 bytes, and no index is kept that a computed ID can replace. The widest
-- columns come first: nothing is lost to alignment.
CREATE TABLE executions (
    accepted_at     timestamptz NOT NULL,
    recorded_after  bigint      NOT NULL, -- microseconds after accepted_at, as the next two
    started_after   bigint,
    finished_after  bigint,
    body_bytes      bigint      NOT NULL,
    stream_sequence bigint      NOT NULL,
    dismissed_at    timestamptz,          -- NULL: not dismissed
    workflow        integer     NOT NULL,
    origin          integer     NOT NULL,
    status          smallint    NOT NULL, -- see relational.StatusCode: 4 is failed, 5 rejected
    -- What an operator looks for among many that went well. Not an index on status itself: then
    -- every step would write to all indexes; so only a failure does.
    trouble         smallint GENERATED ALWAYS AS (CASE WHEN status IN (4, 5) THEN status END) STORED,
    id              bytea       NOT NULL, -- the 16 bytes of the UUID
    content_type    text,                 -- NULL: application/json
    delivery_id     text COLLATE "C",     -- one whose hash is the ID
    other_delivery  text COLLATE "C",     -- any other one
    rerun_of        text,
    replay_of       text,
    requeued_as     text,
    error           text,
    output          bytea,
    attempts        integer,              -- the number of the attempt that runs or ended it; NULL: not known
    cancel_requested_at timestamptz       -- when an operator asked that it ends
) WITH (fillfactor = 90); -- room on the page for the next state of a record
CREATE UNIQUE INDEX executions_id ON executions (id);
-- Every list is in the order of (accepted_at, id), read backwards. Few records have the same
-- accepted_at: they are sorted.
CREATE INDEX executions_time ON executions (accepted_at);
CREATE INDEX executions_workflow ON executions (workflow, accepted_at);
-- A delivery ID whose hash is the ID is found by that, at the nodes of origins.
CREATE INDEX executions_delivery ON executions (other_delivery) WHERE other_delivery IS NOT NULL;
CREATE INDEX executions_trouble ON executions (trouble, accepted_at) WHERE trouble IS NOT NULL;
-- Dead letters: what failed and was neither requeued nor dismissed.
CREATE INDEX executions_dead_letters ON executions (accepted_at)
    WHERE trouble = 4 AND requeued_as IS NULL AND dismissed_at IS NULL;
CREATE INDEX executions_dead_letters_of ON executions (workflow, accepted_at)
    WHERE trouble = 4 AND requeued_as IS NULL AND dismissed_at IS NULL;
-- It finds the canceled executions, too: they always have that time.
CREATE INDEX executions_canceled ON executions (accepted_at) WHERE cancel_requested_at IS NOT NULL;

-- Apart from executions: a count can come before its record, and adding to it writes no record.
CREATE TABLE duplicate_counts (
    id         bytea       NOT NULL PRIMARY KEY, -- of the execution, as in executions
    duplicates bigint      NOT NULL,
    counted_at timestamptz NOT NULL
);
CREATE INDEX duplicate_counts_by_time ON duplicate_counts (counted_at);

CREATE TABLE duplicate_reports (
    report_id   text COLLATE "C" NOT NULL PRIMARY KEY,
    reported_at timestamptz NOT NULL
);
CREATE INDEX duplicate_reports_by_time ON duplicate_reports (reported_at);

-- What runners reported of executions that are not recorded yet. Positions grow in the order in
-- which it came.
CREATE TABLE early_progress (
    execution_id text COLLATE "C" NOT NULL,
    queue        text COLLATE "C" NOT NULL,
    workflow_id  text COLLATE "C" NOT NULL,
    status       text COLLATE "C" NOT NULL,
    at           timestamptz NOT NULL,
    error        text        NOT NULL,
    output       bytea,
    position     bigint      NOT NULL,
    kept_at      timestamptz NOT NULL DEFAULT now(),
    started_at   timestamptz,                -- a final report names the start, too; NULL: it does not
    attempt      integer     NOT NULL DEFAULT 0, -- 0: not known
    PRIMARY KEY (execution_id, queue, workflow_id, status)
);
CREATE INDEX early_progress_by_position ON early_progress (position);

-- Messages that cannot be decoded or recorded. Each stream has sequences of its own: the subject
-- says which stream it is.
CREATE TABLE unreadable (
    stream_sequence bigint      NOT NULL,
    subject         text        NOT NULL,
    reason          text        NOT NULL,
    at              timestamptz NOT NULL,
    dismissed_at    timestamptz, -- NULL: not dismissed
    PRIMARY KEY (stream_sequence, subject)
);
CREATE INDEX unreadable_by_time ON unreadable (at);

-- The messages of each stream that are recorded or quarantined: how far this database is. Rows are
-- added in the transaction that records the messages, and merged now and then.
CREATE TABLE decided (
    stream         text   NOT NULL,
    created        text   NOT NULL,
    first_sequence bigint NOT NULL,
    last_sequence  bigint NOT NULL
);

CREATE TABLE token_uses (
    token_id     text COLLATE "C" NOT NULL PRIMARY KEY,
    last_used_at timestamptz NOT NULL
);

-- What ingresses and executors count by the minute. Every batch adds to the row of its minute. An
-- executor has rows of its own, so that none waits for another one's commit; writer is a number
-- that it drew.
CREATE TABLE minutes (
    minute timestamptz NOT NULL,
    kind   text COLLATE "C" NOT NULL,
    writer smallint    NOT NULL,
    n      bigint      NOT NULL,
    PRIMARY KEY (minute, kind, writer)
);

CREATE TABLE refusals (
    workflow_id text COLLATE "C" NOT NULL,
    minute      timestamptz NOT NULL,
    code        text COLLATE "C" NOT NULL,
    n           bigint      NOT NULL,
    last_at     timestamptz NOT NULL,
    body_bytes  bigint      NOT NULL,
    user_agent  text        NOT NULL,
    PRIMARY KEY (workflow_id, minute, code)
);
CREATE INDEX refusals_by_minute ON refusals (minute);

-- What was last seen of the sender of a trigger node; NULL: never.
CREATE TABLE senders_seen (
    workflow_id    text COLLATE "C" NOT NULL,
    node_id        text COLLATE "C" NOT NULL,
    verified_at    timestamptz,
    handshake_at   timestamptz,
    refused_at     timestamptz,
    refused_code   text   NOT NULL,
    refused_reason text   NOT NULL,
    deliveries     bigint NOT NULL,
    without_id     bigint NOT NULL,
    refused        bigint NOT NULL,
    PRIMARY KEY (workflow_id, node_id)
);

-- The requests that did not meet the filter of a trigger node: how many, and the last ones as JSON.
CREATE TABLE filtered (
    workflow_id   text COLLATE "C" NOT NULL,
    node_id       text COLLATE "C" NOT NULL,
    filtered      bigint NOT NULL,
    last_requests text   NOT NULL,
    PRIMARY KEY (workflow_id, node_id)
);

-- Who changed what. changes are a JSON text, or empty.
CREATE TABLE audit (
    id          text COLLATE "C" NOT NULL PRIMARY KEY,
    at          timestamptz NOT NULL,
    actor_kind  text        NOT NULL,
    actor_id    text        NOT NULL,
    actor_name  text        NOT NULL,
    action      text        NOT NULL,
    account_id  text COLLATE "C" NOT NULL,
    workflow_id text COLLATE "C" NOT NULL,
    node_id     text        NOT NULL,
    changes     text        NOT NULL
);
CREATE INDEX audit_by_time ON audit (at, id);
CREATE INDEX audit_by_account ON audit (account_id, at, id);
CREATE INDEX audit_by_workflow ON audit (workflow_id, at, id);

-- The identity of the installation: one row, or none.
CREATE TABLE installation (
    only_one smallint NOT NULL PRIMARY KEY CHECK (only_one = 1),
    id       text     NOT NULL
);

-- A copy of every record of the registry, as NATS has it. A record that was deleted stays, so that
-- no earlier revision comes back.
CREATE TABLE registry_copy (
    bucket   text COLLATE "C" NOT NULL,
    key      text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    deleted  bigint NOT NULL,
    data     bytea  NOT NULL,
    PRIMARY KEY (bucket, key)
);

-- The revision up to which the copy has each bucket, and when NATS stored that one.
CREATE TABLE registry_position (
    bucket   text COLLATE "C" NOT NULL PRIMARY KEY,
    revision bigint      NOT NULL,
    at       timestamptz NOT NULL
);

-- Sessions of the console that were ended before their time.
CREATE TABLE ended_sessions (id text PRIMARY KEY, until timestamptz NOT NULL);

-- The operator events of accounts. A cause is an occurrence that operators are told of. An event
-- tells of one or more causes, and starts an execution. A condition is a state that operators were
-- told of, until it ends. event_lead has one row: the executor that looks for conditions.
CREATE TABLE event_causes (
    id           text COLLATE "C" NOT NULL PRIMARY KEY,
    account_id   text COLLATE "C" NOT NULL,
    kind         text COLLATE "C" NOT NULL,
    workflow_id  text COLLATE "C" NOT NULL,
    execution_id text COLLATE "C" NOT NULL,
    queue        text COLLATE "C" NOT NULL,
    at           timestamptz NOT NULL,
    about        text COLLATE "C" NOT NULL
);
CREATE INDEX event_causes_by_time ON event_causes (at, id);
CREATE INDEX event_causes_by_group ON event_causes ((kind || ':' || account_id), at, id);
CREATE TABLE operator_events (
    id           text COLLATE "C" NOT NULL PRIMARY KEY,
    account_id   text COLLATE "C" NOT NULL,
    kind         text COLLATE "C" NOT NULL,
    workflow_id  text COLLATE "C" NOT NULL,
    node_id      text COLLATE "C" NOT NULL,
    input        text COLLATE "C" NOT NULL,
    decided_at   timestamptz NOT NULL,
    published_at timestamptz
);
CREATE INDEX operator_events_by_time ON operator_events (decided_at, id);
CREATE TABLE event_conditions (
    account_id text COLLATE "C" NOT NULL,
    kind       text COLLATE "C" NOT NULL,
    subject    text COLLATE "C" NOT NULL,
    since      timestamptz NOT NULL,
    PRIMARY KEY (account_id, kind, subject)
);
CREATE TABLE event_lead (
    caller text COLLATE "C" NOT NULL,
    until  timestamptz NOT NULL
);
INSERT INTO event_lead VALUES ('', '1970-01-01T00:00:00Z');
