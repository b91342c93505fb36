-- What a dispatcher needs: workspaces, bounds of a run, boards that stand still, files, and who offers to work.

ALTER TABLE boards ADD COLUMN paused INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1));
ALTER TABLE boards ADD COLUMN archived INTEGER NOT NULL DEFAULT 0 CHECK (archived IN (0, 1));

ALTER TABLE tasks ADD COLUMN workspace_kind TEXT NOT NULL DEFAULT 'scratch'
    CHECK (workspace_kind IN ('scratch', 'dir', 'worktree'));
ALTER TABLE tasks ADD COLUMN workspace TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN max_runtime_s INTEGER CHECK (max_runtime_s > 0);
ALTER TABLE tasks ADD COLUMN report_only INTEGER NOT NULL DEFAULT 0 CHECK (report_only IN (0, 1));

ALTER TABLE runs ADD COLUMN workspace TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN session TEXT NOT NULL DEFAULT '';

CREATE INDEX runs_held ON runs (host) WHERE outcome IS NULL;
CREATE INDEX runs_counted ON runs (board, profile, host) WHERE outcome IS NULL;

-- Attachments of a task, and with a run what is kept of that.
CREATE TABLE files (
    id TEXT PRIMARY KEY,
    task_id TEXT NOT NULL REFERENCES tasks (id),
    run_id TEXT REFERENCES runs (id),
    name TEXT NOT NULL,
    size INTEGER NOT NULL CHECK (size >= 0),
    sha256 TEXT NOT NULL,
    author TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    data BLOB NOT NULL,
    CHECK (length(data) = size)
) STRICT;

CREATE UNIQUE INDEX files_of ON files (task_id, coalesce(run_id, ''), name);

-- Who starts workers for which profiles, as JSON, or for all of them. Not part of a backup: it is over in a minute.
CREATE TABLE offers (
    board TEXT NOT NULL REFERENCES boards (slug),
    host TEXT NOT NULL,
    profiles TEXT,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY (board, host)
) STRICT;
