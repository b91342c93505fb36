-- Tasks whose workers run on another machine, by the name that the dispatcher's host has for it.

ALTER TABLE tasks ADD COLUMN environment TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN environment TEXT NOT NULL DEFAULT '';

-- The head of what is for one machine: what waits for another one is not to be read past.
CREATE INDEX tasks_ready_at ON tasks (board, assignee, environment, priority DESC, created_ms, id) WHERE status = 'ready';
