-- A run may fail by a fault of our own: `internal`. SQLite changes no constraint in place, so the table is made anew.

CREATE TABLE runs_after (
    id TEXT PRIMARY KEY,
    task_id TEXT NOT NULL REFERENCES tasks (id),
    board TEXT NOT NULL REFERENCES boards (slug),
    generation INTEGER NOT NULL CHECK (generation > 0),
    worker TEXT NOT NULL,
    host TEXT NOT NULL,
    profile TEXT NOT NULL,
    lease_until_ms INTEGER NOT NULL,
    heartbeat_ms INTEGER NOT NULL,
    note TEXT NOT NULL,
    started_ms INTEGER NOT NULL,
    ended_ms INTEGER,
    outcome TEXT CHECK (outcome IN ('completed', 'blocked', 'waiting', 'review_requested', 'failed', 'lost',
        'handoff_failed', 'superseded', 'cancelled')),
    failure TEXT CHECK (failure IN ('quota', 'auth', 'infra', 'handoff', 'task', 'internal')),
    summary TEXT,
    metadata TEXT NOT NULL,
    error TEXT,
    workspace TEXT NOT NULL DEFAULT '',
    session TEXT NOT NULL DEFAULT '',
    tokens INTEGER NOT NULL DEFAULT 0 CHECK (tokens >= 0),
    cost INTEGER NOT NULL DEFAULT 0 CHECK (cost >= 0),
    turns INTEGER NOT NULL DEFAULT 0 CHECK (turns >= 0),
    stuck TEXT NOT NULL DEFAULT '',
    pool TEXT NOT NULL DEFAULT '',
    UNIQUE (task_id, generation),
    CHECK ((outcome IS NULL) = (ended_ms IS NULL)),
    CHECK (failure IS NULL OR outcome IN ('failed', 'lost', 'handoff_failed'))
) STRICT;

INSERT INTO runs_after SELECT id, task_id, board, generation, worker, host, profile, lease_until_ms, heartbeat_ms,
    note, started_ms, ended_ms, outcome, failure, summary, metadata, error, workspace, session, tokens, cost, turns,
    stuck, pool FROM runs;
DROP TABLE runs;
ALTER TABLE runs_after RENAME TO runs;

CREATE UNIQUE INDEX runs_open ON runs (task_id) WHERE outcome IS NULL;
CREATE INDEX runs_lease ON runs (board, lease_until_ms) WHERE outcome IS NULL;
CREATE INDEX runs_held ON runs (host) WHERE outcome IS NULL;
CREATE INDEX runs_counted ON runs (board, profile, host, pool) WHERE outcome IS NULL;
