-- What people and workers say to each other, reviews, what a run uses, and pools.

ALTER TABLE tasks ADD COLUMN reviewer TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN checks TEXT NOT NULL DEFAULT '[]';
ALTER TABLE tasks ADD COLUMN pool TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN max_tokens BIGINT CHECK (max_tokens > 0);
ALTER TABLE tasks ADD COLUMN max_cost BIGINT CHECK (max_cost > 0);
ALTER TABLE tasks ADD COLUMN acknowledged_ms BIGINT;

ALTER TABLE runs ADD COLUMN tokens BIGINT NOT NULL DEFAULT 0 CHECK (tokens >= 0);
ALTER TABLE runs ADD COLUMN cost BIGINT NOT NULL DEFAULT 0 CHECK (cost >= 0);
ALTER TABLE runs ADD COLUMN turns BIGINT NOT NULL DEFAULT 0 CHECK (turns >= 0);
ALTER TABLE runs ADD COLUMN stuck TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN pool TEXT NOT NULL DEFAULT '';

ALTER TABLE comments ADD COLUMN path TEXT NOT NULL DEFAULT '';
ALTER TABLE comments ADD COLUMN line BIGINT CHECK (line > 0);

-- To the worker of a run; nobody else is told.
CREATE TABLE messages (
    task_id TEXT COLLATE "C" NOT NULL REFERENCES tasks (id),
    number BIGINT NOT NULL,
    run_id TEXT COLLATE "C" NOT NULL REFERENCES runs (id),
    author TEXT NOT NULL,
    body TEXT NOT NULL,
    at_ms BIGINT NOT NULL,
    delivered_ms BIGINT,
    seen_ms BIGINT,
    PRIMARY KEY (task_id, number),
    CHECK (seen_ms IS NULL OR delivered_ms IS NOT NULL)
);

CREATE INDEX messages_waiting ON messages (run_id) WHERE seen_ms IS NULL;

ALTER TABLE caps DROP CONSTRAINT caps_scope_check;
ALTER TABLE caps ADD CONSTRAINT caps_scope_check CHECK (scope IN ('board', 'profile', 'host', 'pool'));

DROP INDEX runs_counted;
CREATE INDEX runs_counted ON runs (board, profile, host, pool) WHERE outcome IS NULL;

-- The head of every pool, for when one is drained and what waits behind it is not to be waited for.
CREATE INDEX tasks_ready_in ON tasks (board, assignee, pool, priority DESC, created_ms, id) WHERE status = 'ready';
