-- What people and workers say to each other, reviews, what a run uses, and pools.

ALTER TABLE tasks ADD COLUMN reviewer TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN checks TEXT NOT NULL DEFAULT '[]';
ALTER TABLE tasks ADD COLUMN pool TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN max_tokens INTEGER CHECK (max_tokens > 0);
ALTER TABLE tasks ADD COLUMN max_cost INTEGER CHECK (max_cost > 0);
ALTER TABLE tasks ADD COLUMN acknowledged_ms INTEGER;

ALTER TABLE runs ADD COLUMN tokens INTEGER NOT NULL DEFAULT 0 CHECK (tokens >= 0);
ALTER TABLE runs ADD COLUMN cost INTEGER NOT NULL DEFAULT 0 CHECK (cost >= 0);
ALTER TABLE runs ADD COLUMN turns INTEGER NOT NULL DEFAULT 0 CHECK (turns >= 0);
ALTER TABLE runs ADD COLUMN stuck TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN pool TEXT NOT NULL DEFAULT '';

ALTER TABLE comments ADD COLUMN path TEXT NOT NULL DEFAULT '';
ALTER TABLE comments ADD COLUMN line INTEGER CHECK (line > 0);

-- To the worker of a run; nobody else is told.
CREATE TABLE messages (
    task_id TEXT NOT NULL REFERENCES tasks (id),
    number INTEGER NOT NULL,
    run_id TEXT NOT NULL REFERENCES runs (id),
    author TEXT NOT NULL,
    body TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    delivered_ms INTEGER,
    seen_ms INTEGER,
    PRIMARY KEY (task_id, number),
    CHECK (seen_ms IS NULL OR delivered_ms IS NOT NULL)
) STRICT;

CREATE INDEX messages_waiting ON messages (run_id) WHERE seen_ms IS NULL;

ALTER TABLE caps RENAME TO caps_before;

CREATE TABLE caps (
    board TEXT NOT NULL REFERENCES boards (slug),
    scope TEXT NOT NULL CHECK (scope IN ('board', 'profile', 'host', 'pool')),
    name TEXT NOT NULL,
    most INTEGER NOT NULL CHECK (most >= 0),
    PRIMARY KEY (board, scope, name)
) STRICT;

INSERT INTO caps SELECT * FROM caps_before;
DROP TABLE caps_before;

DROP INDEX runs_counted;
CREATE INDEX runs_counted ON runs (board, profile, host, pool) WHERE outcome IS NULL;

-- The head of every pool, for when one is drained and what waits behind it is not to be waited for.
CREATE INDEX tasks_ready_in ON tasks (board, assignee, pool, priority DESC, created_ms, id) WHERE status = 'ready';
